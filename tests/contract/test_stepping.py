"""Reporting and taking in one change, on every store."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from dagster_bus.core import delivery as life
from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Group
from dagster_bus.core.ranges import Ranges
from dagster_bus.core.reporting import Moment, Report
from dagster_bus.core.stepping import Step, Told, is_short, step_of
from dagster_bus.core.store import Change, GroupView, Store, Tally
from dagster_bus.core.topic import OffsetRange, TopicConfig
from dagster_bus.core.window import HOUR_MS
from dagster_bus.errors import BusError, LeaseLost, StaleState, StoreUnavailable
from dagster_bus.live.bus import LiveBus
from dagster_bus.live.outlook import TRUSTED_MS, Outlook
from dagster_bus.live.shelf import Shelf
from tests.support.builders import FakeClock, group_config, numbers, open_bus

TOPICS = ("orders",)


class Stepper:
    """A worker of the group `readers`."""

    def __init__(self, store: Store, clock: FakeClock, **changes: object) -> None:
        self.config = group_config(**changes)
        self.bus: Bus = open_bus(store, clock, self.config, partitions=1)
        self.group: Group = self.bus.group("readers")
        self.store = store
        self.clock = clock
        self.shelf = Shelf(store)
        self._made = 0

    def view(self) -> GroupView:
        return self.store.view("readers", TOPICS, now_ms=self.clock(), due_limit=1)

    def step(self, *told: Told, most: int = 100, view: GroupView | None = None) -> Step:
        moment = Moment(self.clock(), lambda: 0.5, self._new_id)
        return step_of(
            self.config, view or self.view(), told, moment, "worker", self.shelf.read, most
        )

    def _new_id(self) -> str:
        self._made += 1
        return f"delivery-{self._made}"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def worker(store: Store, clock: FakeClock) -> Stepper:
    return Stepper(store, clock)


def written(worker: Stepper, step: Step) -> Delivery:
    assert step.change is not None
    assert step.taken is not None
    assert worker.store.commit_all([step.change]) == [None]
    return step.taken


def spans(first: int, last: int) -> Ranges:
    return (OffsetRange("orders", 0, first, last),)


def all_done(held: Delivery) -> Told:
    return Told(held, Report(processed=held.ranges))


def test_what_is_done_and_what_is_taken_is_written_together(worker: Stepper) -> None:
    worker.bus.publish_many("orders", numbers(3))
    first = written(worker, worker.step())
    assert (first.ranges, first.state, first.token) == (spans(1, 3), State.RUNNING, 1)
    assert worker.store.delivery(first.id) == first
    worker.bus.publish_many("orders", numbers(2))
    step = worker.step(all_done(first))
    second = written(worker, step)
    assert second.ranges == spans(4, 5)
    assert [event.offset for event in step.events] == [4, 5]
    assert worker.store.delivery(first.id).state is State.DONE
    progress = worker.group.progress()
    assert (progress.tally, progress.running, progress.lag) == (Tally(processed=3), 2, 2)


def test_a_step_never_crosses_an_hour_nor_takes_more_than_it_may(
    worker: Stepper, clock: FakeClock
) -> None:
    worker.bus.publish_many("orders", numbers(3))
    clock.advance(HOUR_MS)
    worker.bus.publish_many("orders", numbers(3))
    assert written(worker, worker.step()).ranges == spans(1, 3)
    assert written(worker, worker.step(most=2)).ranges == spans(4, 5)


def test_a_step_takes_as_many_bytes_as_it_may_and_at_least_one_event(
    store: Store, clock: FakeClock
) -> None:
    worker = Stepper(store, clock, max_bytes=25, max_inflight=10)
    worker.bus.publish_many("orders", ["x" * 6, "x" * 6, "ä" * 6, "x" * 100])
    assert written(worker, worker.step()).ranges == spans(1, 2)
    assert written(worker, worker.step()).ranges == spans(3, 3)
    assert written(worker, worker.step()).ranges == spans(4, 4)


def test_nobody_reports_with_a_lease_that_is_over(worker: Stepper, clock: FakeClock) -> None:
    worker.bus.publish("orders", 0)
    held = written(worker, worker.step())
    clock.advance(worker.config.lease_ms)
    with pytest.raises(LeaseLost, match="ran out"):
        worker.step(all_done(held))
    worker.group.reserve()
    with pytest.raises(LeaseLost, match="not under way"):
        worker.step(all_done(held))


def test_the_short_way_is_not_for_groups_that_have_something_to_try_again(
    worker: Stepper, clock: FakeClock
) -> None:
    worker.bus.publish("orders", 0)
    assert is_short(worker.config, worker.view(), clock())
    worker.group.fail(written(worker, worker.step()), ValueError("bad"))
    clock.advance(HOUR_MS)
    assert not is_short(worker.config, worker.view(), clock())


def test_of_changes_written_together_only_those_that_are_stale_are_refused(
    worker: Stepper,
) -> None:
    worker.bus.publish("orders", 0)
    change = worker.step().change
    rival = worker.step().change
    assert change is not None
    assert rival is not None
    other = Change(group="others", done=Tally(processed=1))
    refusals = worker.store.commit_all([change, rival, other])
    assert [type(each) for each in refusals] == [type(None), StaleState, type(None)]
    assert worker.store.view("others", (), now_ms=0, due_limit=0).tally == Tally(processed=1)
    assert worker.group.progress().running == 1


def test_a_worker_alone_knows_how_its_group_stands(worker: Stepper, clock: FakeClock) -> None:
    worker.bus.publish_many("orders", numbers(2))
    outlook = Outlook("worker")
    outlook.saw(worker.view(), clock())
    held = None
    for _ in range(3):
        step = worker.step(*([all_done(held)] if held else []), view=_known(worker, outlook))
        held = written(worker, step)
        outlook.did(step)
        worker.bus.publish_many("orders", numbers(2))
        known, seen = _known(worker, outlook), worker.view()
        assert known is not None
        assert (known.version, known.heads, known.in_flight) == (
            seen.version,
            seen.heads,
            seen.in_flight,
        )
    clock.advance(TRUSTED_MS)
    assert _known(worker, outlook) is None, "it looks again after a while"


def test_a_worker_that_is_not_alone_or_was_refused_looks_again(
    worker: Stepper, clock: FakeClock
) -> None:
    worker.bus.publish_many("orders", numbers(2))
    outlook = Outlook("another")
    outlook.saw(worker.view(), clock())
    assert _known(worker, outlook) is not None
    outlook.forget()
    assert _known(worker, outlook) is None
    written(worker, worker.step(most=1))
    outlook.saw(worker.view(), clock())
    assert _known(worker, outlook) is None


def _known(worker: Stepper, outlook: Outlook) -> GroupView | None:
    def ends() -> dict[object, int]:
        return {at: each.end for at, each in worker.store.bounds(TOPICS).items()}

    return outlook.at(ends, worker.clock(), worker.shelf.time_of)  # type: ignore[arg-type]


def test_readers_of_a_shelf_get_what_is_in_the_log_wherever_they_are(worker: Stepper) -> None:
    shelf = worker.shelf
    worker.bus.publish_many("orders", numbers(20))
    for first, last in [(11, 15), (12, 20), (1, 3), (5, 12), (1, 20), (20, 20)]:
        page = shelf.read(OffsetRange("orders", 0, first, last))
        assert [event.offset for event in page.events] == [*range(first, last + 1)]
        assert page.last == last
        assert page.most_bytes >= sum(event.size for event in page.events)


class Unsure:
    """A store that says once that it failed, after it has written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit_all(self, changes: Sequence[Change]) -> list[BusError | None]:
        written = self._store.commit_all(changes)
        if not self.has_failed:
            self.has_failed = True
            raise StoreUnavailable("nobody knows")
        return written


def test_what_was_taken_while_the_store_failed_is_handed_back_and_not_lost(store: Store) -> None:
    topic = TopicConfig("orders")
    store.declare([topic])
    unsure = Unsure(store)
    handled: list[Any] = []
    with LiveBus(cast(Store, unsure), [topic]) as bus:
        bus.subscribe(
            "orders",
            lambda event: handled.append(event.payload),
            group="readers",
            retry={"max_attempts": 1},
            lease=30.0,
        )
        bus.publish("orders", 1)
        assert bus.idle(20)
        assert unsure.has_failed
        assert (handled, bus.group("readers").progress().tally) == ([1], Tally(processed=1))


def test_of_changes_written_together_a_stale_one_keeps_out_no_other(worker: Stepper) -> None:
    worker.bus.publish_many("orders", numbers(3))
    (held,) = worker.group.take("worker")
    other = Change(group="others", done=Tally(processed=1))
    done = Change(group="readers", deliveries=(life.abandon(held, now_ms=worker.clock()),))
    answers = worker.store.commit_all([other, done, done, other])
    assert [type(each) for each in answers] == [type(None), type(None), StaleState, type(None)]
    assert worker.store.progress("others", ()).tally == Tally(processed=2)
