"""Reports on parts of a delivery: each event ends by itself, and holds up no other."""

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, OnExhausted, State
from dagster_bus.core.event import Event, Message
from dagster_bus.core.group_config import Order
from dagster_bus.core.groups import Group
from dagster_bus.core.ranges import Place, Ranges, covering
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import Store, Tally
from dagster_bus.core.topic import EventFilter, TopicPartition
from dagster_bus.core.window import HOUR_MS
from dagster_bus.errors import LeaseLost, UsageError
from tests.support.builders import FakeClock, begin, group_config, numbers, open_bus

AT = TopicPartition("orders", 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def one_partition(store: Store, clock: FakeClock, **changes: object) -> tuple[Bus, Group]:
    bus = open_bus(store, clock, group_config(**changes), partitions=1)
    return bus, bus.group("readers")


def at(*offsets: int) -> Ranges:
    return covering(Place("orders", 0, offset) for offset in offsets)


def offsets(events: list[Event]) -> list[int]:
    return [event.offset for event in events]


def held(group: Group, delivery: Delivery) -> list[int]:
    return offsets(list(group.events(delivery)))


def test_single_events_are_settled_in_any_order_and_the_cursor_waits_for_the_oldest(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock)
    bus.publish_many("orders", numbers(10))
    delivery = begin(group)
    rest = group.report(delivery, Report(processed=at(2, 3, 7), filtered=at(9), expired=at(10)))
    assert held(group, rest) == [1, 4, 5, 6, 8]
    progress = group.progress()
    assert progress.tally == Tally(processed=3, filtered=1, expired=1)
    assert (progress.cursors[AT], progress.running, progress.lag) == (0, 5, 5)
    rest = group.report(rest, Report(processed=at(1)))
    assert group.progress().cursors[AT] == 3
    done = group.report(rest, Report(processed=at(4, 5, 6, 8)))
    assert done.state is State.DONE
    assert group.progress().cursors[AT] == 10
    assert group.reserve() == []


def test_a_late_worker_cannot_report(store: Store, clock: FakeClock) -> None:
    bus, group = one_partition(store, clock)
    bus.publish_many("orders", numbers(3))
    delivery = begin(group)
    clock.advance(5_000)
    with pytest.raises(LeaseLost):
        group.report(delivery, Report(processed=at(1)))
    assert group.progress().tally == Tally()


@pytest.mark.parametrize(
    "report",
    [
        Report(processed=at(4)),
        Report(processed=at(1), filtered=at(1)),
        Report(processed=at(1), failed=(Failed(at(1), ValueError()),)),
        Report(failed=(Failed(at(9), ValueError()),)),
    ],
)
def test_a_report_on_what_is_not_held_or_named_twice_changes_nothing(
    store: Store, clock: FakeClock, report: Report
) -> None:
    bus, group = one_partition(store, clock)
    bus.publish_many("orders", numbers(3))
    delivery = begin(group)
    with pytest.raises(UsageError):
        group.report(delivery, report)
    assert store.delivery(delivery.id) == delivery


def test_a_failed_event_waits_aside_and_the_rest_flows_on(store: Store, clock: FakeClock) -> None:
    bus, group = one_partition(store, clock)
    bus.publish_many("orders", numbers(5))
    delivery = begin(group)
    error = ValueError("bad")
    done = group.report(delivery, Report(processed=at(1, 3, 4, 5), failed=(Failed(at(2), error),)))
    assert done.state is State.DONE
    progress = group.progress()
    assert (progress.tally.processed, progress.waiting, progress.cursors[AT]) == (4, 1, 1)
    bus.publish_many("orders", numbers(2))
    assert held(group, begin(group)) == [6, 7]
    clock.advance(1_000)
    again = begin(group)
    assert held(group, again) == [2]
    assert (again.attempt, [error.message for error in again.errors]) == (2, ["bad"])


def test_the_one_event_that_fails_every_time_dies_with_its_own_story(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock)
    bus.publish_many("orders", numbers(3))
    group.report(begin(group), Report(processed=at(1, 3), failed=(Failed(at(2), ValueError("1")),)))
    for attempt in ("2", "3"):
        clock.advance(60_000)
        group.fail(begin(group), ValueError(attempt))
    (letter,) = bus.dead_letters("readers").list()
    assert (letter.event.offset, [error.message for error in letter.errors]) == (2, ["1", "2", "3"])
    assert group.progress().tally == Tally(processed=2, dead_lettered=1)
    assert group.progress().cursors[AT] == 3


def test_a_refused_event_goes_to_the_dead_letters_at_once(store: Store, clock: FakeClock) -> None:
    bus, group = one_partition(store, clock)
    bus.publish_many("orders", numbers(3))
    refused = (Failed(at(2), ValueError("amount > 0")),)
    group.report(begin(group), Report(processed=at(1, 3), refused=refused))
    assert [each.event.offset for each in bus.dead_letters("readers").list()] == [2]
    assert group.progress().lag == 0


def test_what_a_worker_did_not_begin_goes_back_without_an_attempt(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock)
    bus.publish_many("orders", numbers(4))
    group.report(begin(group), Report(processed=at(1), returned=at(2, 3, 4)))
    again = begin(group)
    assert (held(group, again), again.attempt) == ([2, 3, 4], 1)


def test_rules_by_exception_end_the_attempts_early(store: Store, clock: FakeClock) -> None:
    policy = RetryPolicy(max_attempts=9, dead_letter_on=("Key*",), jitter="none")
    bus, group = one_partition(store, clock, retry=policy)
    bus.publish_many("orders", numbers(2))
    group.report(
        begin(group),
        Report(failed=(Failed(at(1), KeyError("x")), Failed(at(2), ValueError("y")))),
    )
    assert [each.event.offset for each in bus.dead_letters("readers").list()] == [1]
    clock.advance(1_000)
    assert held(group, begin(group)) == [2]


def test_isolation_gives_an_exhausted_batch_to_one_who_finds_the_poison(
    store: Store, clock: FakeClock
) -> None:
    policy = RetryPolicy(max_attempts=2, base_delay_ms=0)
    bus, group = one_partition(store, clock, retry=policy, on_exhausted=OnExhausted.ISOLATE)
    bus.publish_many("orders", numbers(5))
    group.fail(begin(group), ValueError("batch"))
    failed = group.fail(begin(group), ValueError("batch"))
    assert (failed.state, failed.exhausted) == (State.WAITING, True)
    last = begin(group)
    assert group.is_exhausted(last)
    alone = Failed(at(3), ValueError("alone"))
    group.report(last, Report(processed=at(1, 2, 4, 5), failed=(alone,)))
    (letter,) = bus.dead_letters("readers").list()
    messages = [error.message for error in letter.errors]
    assert (letter.event.offset, messages) == (3, ["batch", "batch", "alone"])
    assert group.progress().tally == Tally(processed=4, dead_lettered=1)


def test_a_group_that_is_to_block_stops_and_goes_on_when_told(
    store: Store, clock: FakeClock
) -> None:
    policy = RetryPolicy(max_attempts=1)
    bus, group = one_partition(store, clock, retry=policy, on_exhausted=OnExhausted.BLOCK)
    bus.publish_many("orders", numbers(2))
    group.report(begin(group), Report(processed=at(2), failed=(Failed(at(1), ValueError()),)))
    bus.publish_many("orders", numbers(2))
    assert group.reserve() == []
    assert (group.progress().blocked, group.progress().cursors[AT]) == (1, 0)
    assert bus.dead_letters("readers").list() == []
    assert group.resume() == 1
    again = begin(group)
    assert (held(group, again), again.attempt, again.errors) == ([1], 1, ())


def test_a_group_that_is_to_block_also_stops_when_a_worker_vanished_on_its_last_attempt(
    store: Store, clock: FakeClock
) -> None:
    policy = RetryPolicy(max_attempts=1)
    bus, group = one_partition(store, clock, retry=policy, on_exhausted=OnExhausted.BLOCK)
    bus.publish_many("orders", numbers(2))
    begin(group, "vanishes")
    clock.advance(60_000)
    looks = begin(group)
    assert group.is_exhausted(looks)
    blocked = group.give_up(looks)
    assert (blocked.state, store.delivery(looks.id)) == (State.BLOCKED, blocked)
    bus.publish_many("orders", numbers(2))
    assert group.reserve() == []
    assert bus.dead_letters("readers").list() == []
    assert (group.progress().blocked, group.progress().tally) == (2, Tally())
    with pytest.raises(LeaseLost):
        group.settle(looks)
    assert group.resume() == 1
    again = begin(group)
    assert (held(group, again), again.attempt, again.exhausted) == ([1, 2], 1, False)
    assert again.errors == ()
    group.settle(again)
    group.settle(begin(group))
    assert group.progress().tally == Tally(processed=4)


def keyed(bus: Bus, *keys: str) -> None:
    bus.publish_many("orders", [Message({}, key=key) for key in keys])


def test_by_key_a_failed_event_parks_its_keys_successors_only(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock, order=Order.KEY)
    keyed(bus, "a", "b", "a")
    failed = Failed(at(1), ValueError("bad"), behind=at(3))
    group.report(begin(group), Report(processed=at(2), failed=(failed,)))
    keyed(bus, "b", "a", "c", "a")
    fresh = begin(group)
    assert held(group, fresh) == [4, 6], "5 and 7 have joined their key's waiting event"
    group.settle(fresh)
    clock.advance(1_000)
    again = begin(group)
    assert held(group, again) == [1, 3, 5, 7]
    group.settle(again)
    assert group.progress().tally == Tally(processed=7)


@pytest.mark.parametrize("lasting", [True, False])
def test_by_key_an_event_that_waits_across_an_hour_parks_its_key_or_all_that_a_table_keeps_apart(
    store: Store, clock: FakeClock, lasting: bool
) -> None:
    patient = RetryPolicy(base_delay_ms=2 * HOUR_MS, max_delay_ms=2 * HOUR_MS, jitter="none")
    bus, group = one_partition(store, clock, order=Order.KEY, retry=patient, lasting=lasting)
    keyed(bus, "a")
    group.fail(begin(group), ValueError())
    clock.advance(HOUR_MS)
    keyed(bus, "b", "a", "c")
    fresh = begin(group)
    assert held(group, fresh) == ([2] if lasting else [2, 4])
    group.settle(fresh)
    clock.advance(HOUR_MS)
    again = begin(group)
    assert held(group, again) == ([1] if lasting else [1, 3])
    group.settle(again)
    assert group.progress().lag == (2 if lasting else 0)


def test_by_key_the_successors_of_an_event_that_dies_start_afresh(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock, order=Order.KEY, retry=RetryPolicy(max_attempts=1))
    keyed(bus, "a", "a", "b")
    failed = Failed(at(1), ValueError("bad"), behind=at(2))
    group.report(begin(group), Report(processed=at(3), failed=(failed,)))
    assert [each.event.offset for each in bus.dead_letters("readers").list()] == [1]
    again = begin(group)
    assert (held(group, again), again.attempt, again.errors) == ([2], 1, ())


def test_by_key_what_waited_behind_a_failed_event_has_all_its_attempts(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock, order=Order.KEY)
    keyed(bus, "a", "a", "a")
    delivery = begin(group)
    for _ in range(2):
        group.report(delivery, Report(failed=(Failed(at(1), ValueError("bad"), behind=at(2, 3)),)))
        clock.advance(10_000)
        delivery = begin(group)
    assert (delivery.attempt, delivery.failing, delivery.behind) == (3, at(1), at(2, 3))
    second = Failed(at(2), TypeError("its own"), behind=at(3))
    group.report(delivery, Report(processed=at(1), failed=(second,)))
    clock.advance(1_000)
    again = begin(group)
    assert (again.attempt, again.failing, again.behind) == (2, at(2), at(3))
    assert [error.type for error in again.errors] == ["TypeError"]
    group.report(again, Report(processed=at(2)))
    assert group.fail(again, OSError()).errors[0].attempt == 1, "of the third this was the first"


def test_by_key_what_fails_as_a_whole_is_held_against_those_that_failed_before(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock, order=Order.KEY)
    keyed(bus, "a")
    group.fail(begin(group), ValueError("bad"))
    keyed(bus, "a", "a")
    assert group.reserve() == [], "they have joined the first"
    for delay_ms in (1_000, 2_000):
        clock.advance(delay_ms)
        delivery = begin(group)
        assert held(group, delivery) == [1, 2, 3]
        group.fail(delivery, ValueError("bad"))
    (letter,) = bus.dead_letters("readers").list()
    assert (letter.event.offset, len(letter.errors)) == (1, 3)
    afresh = begin(group)
    assert (held(group, afresh), afresh.attempt, afresh.errors) == ([2, 3], 1, ())


def test_by_key_a_holder_that_gives_up_lets_those_behind_start_afresh(
    store: Store, clock: FakeClock
) -> None:
    bus, group = one_partition(store, clock, order=Order.KEY, retry=RetryPolicy(max_attempts=2))
    keyed(bus, "a", "a")
    group.report(begin(group), Report(failed=(Failed(at(1), ValueError(), behind=at(2)),)))
    clock.advance(60_000)
    begin(group)
    clock.advance(5_000)
    looker = begin(group)
    assert group.is_exhausted(looker)
    group.give_up(looker)
    assert [each.event.offset for each in bus.dead_letters("readers").list()] == [1]
    afresh = begin(group)
    assert (held(group, afresh), afresh.attempt, afresh.errors) == ([2], 1, ())


@pytest.mark.parametrize("leaves", ["killed", "told to stop"])
def test_by_key_nothing_joins_a_delivery_that_a_table_may_have_already(
    store: Store, clock: FakeClock, leaves: str
) -> None:
    """Its next holder may find its rows there, and settle it as it is."""
    bus, group = one_partition(store, clock, order=Order.KEY)
    keyed(bus, "a")
    delivery = begin(group)
    if leaves == "killed":
        clock.advance(5_000)
        assert group.reserve() == [], "it waits for its next attempt"
    else:
        group.hand_back(delivery)
        assert group.reserve(most=0) == []
    keyed(bus, "b", "a")
    (open_one,) = group.open_deliveries()
    assert open_one.doubtful
    fresh = [each for each in group.take("run", most=5) if each.id != open_one.id]
    assert [held(group, each) for each in fresh] == ([[2]] if leaves == "killed" else [])
    assert sum(each.size for each in group.open_deliveries() if each.id == open_one.id) == 1


def test_by_key_nobody_overtakes_a_key_that_is_under_way(store: Store, clock: FakeClock) -> None:
    bus, group = one_partition(store, clock, order=Order.KEY, max_inflight=5)
    keyed(bus, "a", "b")
    group.report(begin(group), Report(processed=at(2), failed=(Failed(at(1), ValueError()),)))
    clock.advance(1_000)
    again = begin(group)
    assert held(group, again) == [1]
    keyed(bus, "c", "a", "d")
    assert group.reserve() == [], "one delivery at a time works on a partition"
    group.settle(again)
    assert held(group, begin(group)) == [3, 4, 5]


def test_by_partition_nothing_passes_a_failed_event(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(order=Order.PARTITION, max_inflight=5))
    group = bus.group("readers")
    bus.publish_many("orders", [Message(n, partition=n % 2) for n in range(6)])
    delivery = begin(group)
    failed = Failed(at(2), ValueError(), behind=at(3))
    others = covering(Place("orders", 1, offset) for offset in (1, 2, 3))
    group.report(delivery, Report(processed=(*at(1), *others), failed=(failed,)))
    bus.publish_many("orders", [Message(n, partition=n % 2) for n in range(2)])
    fresh = begin(group)
    assert [(e.partition, e.offset) for e in group.events(fresh)] == [(1, 4)]
    assert group.reserve() == []
    clock.advance(1_000)
    assert held(group, begin(group)) == [2, 3]


def test_filters_look_at_the_key_too(store: Store, clock: FakeClock) -> None:
    bus, group = one_partition(
        store, clock, filter=EventFilter(keys=("a", "b")), retry=RetryPolicy(max_attempts=1)
    )
    keyed(bus, "a", "c", "b", "c")
    group.fail(begin(group), ValueError())
    assert group.progress().tally == Tally(filtered=2, dead_lettered=2)


def test_expired_events_do_not_die(store: Store, clock: FakeClock) -> None:
    bus, group = one_partition(store, clock, retry=RetryPolicy(max_attempts=1))
    bus.publish_many("orders", [Message(1, ttl_s=1), Message(2), Message(3, ttl_s=60)])
    clock.advance(1_000)
    group.fail(begin(group), ValueError())
    assert group.progress().tally == Tally(expired=1, dead_lettered=2)
    assert [each.event.payload for each in bus.dead_letters("readers").list()] == [3, 2]


def test_by_key_nobody_overtakes_what_waits_to_be_isolated(store: Store, clock: FakeClock) -> None:
    bus, group = one_partition(
        store,
        clock,
        order=Order.KEY,
        on_exhausted=OnExhausted.ISOLATE,
        retry=RetryPolicy(max_attempts=1),
    )
    keyed(bus, "a", "a", "a", "b")
    failed = Failed(at(1, 2), ValueError(), behind=at(3))
    group.report(begin(group), Report(processed=at(4), failed=(failed,)))
    (waiting,) = group.reserve()
    assert (held(group, waiting), waiting.exhausted) == ([1, 2, 3], True)
