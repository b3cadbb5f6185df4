"""Partitions stay with the workers that took from them, on every store, as long as that is good."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from dagster_bus.core.event import Event
from dagster_bus.core.groups import Group
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicConfig
from dagster_bus.opening import Bus
from dagster_bus.stores import open_store
from tests.support.builders import FakeClock, group_config, numbers, open_bus

LONG_S = 60.0
TOPIC = TopicConfig("orders", 4)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def group(store: Store, clock: FakeClock) -> Group:
    clock.advance(1_000)
    bus = open_bus(store, clock, group_config(sticky_ms=200, max_inflight=10), partitions=1)
    bus.publish_many("orders", numbers(2))
    group = bus.group("readers")
    (held,) = group.take("first")
    group.settle(held)
    bus.publish_many("orders", numbers(2))
    return group


def test_new_events_are_left_to_the_worker_that_took_those_before(group: Group) -> None:
    assert group.take("second") == []
    (held,) = group.take("first")
    assert str(held.ranges[0]) == "orders/0:3-4"


def test_events_that_wait_for_too_long_go_to_anybody_who_keeps_them_then(
    group: Group, store: Store, clock: FakeClock
) -> None:
    clock.advance(199)
    assert group.take("second") == []
    clock.advance(1)
    (held,) = group.take("second")
    group.settle(held)
    Bus(store, [TopicConfig("orders", 1)], [], clock).publish("orders", 5)
    assert group.take("first") == []
    assert group.take("second")


def test_the_partitions_of_a_worker_that_is_gone_are_free(group: Group) -> None:
    assert group.take("second", is_gone=lambda name: name == "other") == []
    assert group.take("second", is_gone=lambda name: name == "first")


def test_nobody_waits_for_a_clock_that_was_ahead(group: Group, clock: FakeClock) -> None:
    assert group.take("second") == []
    clock.advance(-1)
    assert group.take("second")


def test_what_is_to_be_tried_again_belongs_to_nobody(
    group: Group, store: Store, clock: FakeClock
) -> None:
    (held,) = group.take("first")
    group.fail(held, ValueError("bad luck"))
    clock.advance(1_000)
    (again,) = group.take("second")
    assert again.id == held.id


def test_a_run_that_is_started_for_its_events_owns_nothing(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(sticky_ms=200), partitions=1)
    bus.publish("orders", 1)
    group = bus.group("readers")
    (reserved,) = group.reserve()
    group.lease(reserved.id, reservation=reserved.reservation, worker="run")
    bus.publish("orders", 2)
    assert group.take("worker")


@pytest.fixture
def open_live(store_url: str) -> Iterator[Callable[[], Bus]]:
    opened: list[Bus] = []

    def bus() -> Bus:
        store = open_store(store_url)
        store.declare([TOPIC])
        opened.append(Bus(store, [TOPIC]))
        return opened[-1]

    yield bus
    for each in opened:
        each.close(0)


class Handled:
    """Which worker got events of which partition."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.by: dict[int, list[str]] = defaultdict(list)

    def as_worker(self, name: str) -> Callable[[Event], None]:
        def handle(event: Event) -> None:
            with self._changed:
                self.by[event.partition].append(name)
                self._changed.notify_all()

        return handle

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: sum(map(len, self.by.values())) >= count, LONG_S
            ), self.by


def test_a_worker_that_keeps_up_keeps_its_partitions(open_live: Callable[[], Bus]) -> None:
    handled = Handled()
    first, second = open_live(), open_live()
    first.subscribe("orders", handled.as_worker("first"), group="readers")
    first.publish_many("orders", numbers(8))
    handled.wait(8)
    second.subscribe("orders", handled.as_worker("second"), group="readers")
    for count in range(16, 41, 8):
        second.publish_many("orders", numbers(8))
        handled.wait(count)
    for each in handled.by.values():
        changes = sum(one != following for one, following in pairwise(each))
        assert changes <= 2, "none, but for a moment in which one was slow"


def test_what_a_worker_leaves_is_taken_over_soon(open_live: Callable[[], Bus]) -> None:
    handled = Handled()
    first, second = open_live(), open_live()
    leaving = first.subscribe("orders", handled.as_worker("first"), group="readers")
    first.publish_many("orders", numbers(8))
    handled.wait(8)
    second.subscribe("orders", handled.as_worker("second"), group="readers")
    leaving.unsubscribe()
    first.publish_many("orders", numbers(8))
    handled.wait(16)
    assert all(set(each[2:]) == {"second"} for each in handled.by.values())


def test_workers_share_a_backlog_that_is_too_much_for_one(open_live: Callable[[], Bus]) -> None:
    handled = Handled()
    first, second = open_live(), open_live()
    both = threading.Barrier(2, timeout=LONG_S)

    def meeting(name: str) -> Callable[[Event], None]:
        note = handled.as_worker(name)

        def handle(event: Event) -> None:
            both.wait()  # neither gets on without the other
            note(event)

        return handle

    first.publish_many("orders", numbers(8))
    for name, bus in (("first", first), ("second", second)):
        bus.subscribe("orders", meeting(name), group="readers", queue_capacity=1)
    handled.wait(8)
    workers = [worker for each in handled.by.values() for worker in each]
    assert sorted(workers) == ["first"] * 4 + ["second"] * 4
