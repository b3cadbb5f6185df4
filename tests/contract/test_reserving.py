"""What a group reserves: where it begins, how batches are cut, when it pauses, where it is sent."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dagster_bus.core.breaker import PROBE_EVENTS, Circuit
from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Message, Priority
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.groups import Group
from dagster_bus.core.position import AtOffset, AtTime, Start
from dagster_bus.core.ranges import Place, count, covering
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.core.retry import BreakerPolicy, RetryPolicy
from dagster_bus.core.store import Store, Tally
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicPartition
from dagster_bus.core.window import HOUR_MS
from dagster_bus.errors import DeliveriesUnderWay, LeaseLost, OffsetTrimmed, UnknownTopic
from tests.support.builders import START_MS, FakeClock, begin, group_config, numbers, open_bus

AT = TopicPartition("orders", 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def offsets(group: Group, delivery: Delivery) -> list[int]:
    return [event.offset for event in group.events(delivery)]


def work_off(group: Group) -> list[int]:
    """All that the group gets, delivery by delivery."""
    done = []
    while reserved := group.reserve(most=1):
        held = group.lease(reserved[0].id, reservation=reserved[0].reservation, worker="run")
        done += offsets(group, held)
        group.settle(held)
    return done


def on_one(store: Store, clock: FakeClock, *configs: GroupConfig) -> Bus:
    return open_bus(store, clock, *configs, partitions=1)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 1),
        ("latest", 11),
        (AtOffset(4), 4),
        (AtOffset(15), 15),
        (AtTime(START_MS + 1_000), 6),
    ],
)
def test_a_new_group_begins_where_it_is_told(
    store: Store, clock: FakeClock, start: Start, first: int
) -> None:
    bus = on_one(store, clock, group_config(start=start))
    bus.publish_many("orders", numbers(5))
    clock.advance(1_000)
    bus.publish_many("orders", numbers(5))
    group = bus.group("readers")
    early = work_off(group)
    bus.publish_many("orders", numbers(10))
    assert early + work_off(group) == list(range(first, 21))
    progress = group.progress()
    assert (progress.published, progress.lag) == (21 - first, 0)
    assert progress.tally == Tally(processed=21 - first)


def test_a_group_that_has_begun_is_not_sent_back_to_its_start(
    store: Store, clock: FakeClock
) -> None:
    bus = on_one(store, clock, group_config(start="latest"))
    group = bus.group("readers")
    assert group.reserve() == []
    bus.publish_many("orders", numbers(3))
    again = on_one(store, clock, group_config(start="latest")).group("readers")
    assert work_off(again) == [1, 2, 3]


def test_a_batch_has_at_most_so_many_bytes_and_at_least_one_event(
    store: Store, clock: FakeClock
) -> None:
    bus = on_one(store, clock, group_config(max_bytes=100, max_inflight=9))
    sizes = [20, 20, 20, 20, 20, 300, 40, 40, 10]
    bus.publish_many("orders", ["x" * (size - 4) for size in sizes])  # two quotes, two for "{}"
    group = bus.group("readers")
    assert [offsets(group, each) for each in group.reserve()] == [
        [1, 2, 3, 4, 5],
        [6],
        [7, 8, 9],
    ]


def test_bytes_are_counted_over_all_partitions(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(max_bytes=100, max_inflight=9), partitions=3)
    bus.publish_many("orders", ["x" * 26] * 12)
    group = bus.group("readers")
    reserved = group.reserve()
    assert [each.size for each in reserved] == [3, 3, 3, 3]


def test_a_thousand_deliveries_are_reserved_at_once_and_no_event_is_in_two(
    store: Store, clock: FakeClock
) -> None:
    bus = open_bus(store, clock, group_config(max_events=3, max_inflight=1_000), partitions=3)
    group = bus.group("readers")
    bus.publish_many("orders", numbers(2_000))
    clock.advance(HOUR_MS)
    bus.publish_many("orders", numbers(2_000))
    reserved = group.reserve()
    assert len(reserved) == 1_000
    assert sorted(each.size for each in reserved) == [2, *[3] * 999], "2,000 is no multiple of 3"
    assert sorted(store.open_deliveries("readers"), key=lambda each: each.id) == sorted(
        reserved, key=lambda each: each.id
    )
    held = sorted(part for each in reserved for part in each.ranges)
    firsts = dict.fromkeys(store.bounds(["orders"]), 1)
    for part in held:
        at = TopicPartition(part.topic, part.partition)
        assert part.first == firsts[at], "in each partition one after the other, without a gap"
        firsts[at] = part.last + 1
    for each in reserved:
        early = each.window == reserved[0].window
        assert {event.ts for event in group.events(each)} == {START_MS + (0 if early else HOUR_MS)}
    assert group.reserve() == []
    assert count(group.untaken()) == 4_000 - 2_999


def test_many_that_are_due_are_reserved_again_at_once(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config(max_events=1, max_inflight=300))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(310))
    first = group.reserve()
    clock.advance(10_000)  # nobody came for them
    again = group.reserve(most=200)
    assert len({each.id for each in again} & {each.id for each in first}) == 200
    assert {each.reservation for each in again} == {2}
    more = group.reserve()
    assert len(more) == 100
    assert len({each.id for each in (*again, *more)}) == 300
    assert group.reserve() == []


def test_no_more_than_are_asked_for_are_reserved(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config(max_events=2, max_inflight=50))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(100))
    assert [offsets(group, each) for each in group.reserve(most=3)] == [[1, 2], [3, 4], [5, 6]]
    assert group.reserve(most=0) == []
    assert len(group.reserve()) == 47


def test_of_several_batches_only_the_full_ones_do_not_wait(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config(max_events=5, max_inflight=9, max_wait_ms=10_000))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(13))
    assert [each.size for each in group.reserve()] == [5, 5]
    clock.advance(10_000)
    assert sorted(each.size for each in group.reserve()) == [3, 5, 5], "two were not come for"


def test_two_who_reserve_at_once_get_each_event_once(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(max_events=1, max_inflight=200))
    bus.publish_many("orders", numbers(200))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: bus.group("readers").reserve(most=60), range(4)))
    held = [part for some in found for each in some for part in each.ranges]
    assert len(held) == len(set(held)) == 200


def test_a_batch_that_is_not_full_waits_for_more_events_for_a_while(
    store: Store, clock: FakeClock
) -> None:
    bus = on_one(store, clock, group_config(max_events=5, max_wait_ms=10_000))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(3))
    assert group.reserve() == []
    clock.advance(9_999)
    assert group.reserve() == []
    bus.publish_many("orders", numbers(2))
    full = begin(group)
    assert full.size == 5, "it is full"
    group.settle(full)
    bus.publish_many("orders", numbers(1))
    clock.advance(10_000)
    assert [each.size for each in group.reserve()] == [1], "it has waited"


def test_a_window_that_is_over_is_not_waited_for(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config(max_wait_ms=5 * HOUR_MS))
    bus.publish_many("orders", numbers(3))
    clock.advance(HOUR_MS)
    assert [each.size for each in bus.group("readers").reserve()] == [3]


def breaking(failures: int = 2) -> RetryPolicy:
    breaker = BreakerPolicy(failures, reset_after_ms=60_000)
    return RetryPolicy(max_attempts=9, base_delay_ms=100, jitter="none", breaker=breaker)


def test_a_group_that_fails_again_and_again_pauses_and_a_probe_decides(
    store: Store, clock: FakeClock
) -> None:
    bus = on_one(store, clock, group_config(max_events=50, max_inflight=5, retry=breaking()))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(100))
    for _ in range(2):
        group.fail(begin(group), ValueError("down"))
    assert group.circuit()[0] is Circuit.OPEN
    clock.advance(59_999)
    assert group.reserve() == [], "although two batches are due"
    clock.advance(1)
    assert group.circuit()[0] is Circuit.HALF_OPEN
    (probe,) = group.reserve()
    group.fail(
        group.lease(probe.id, reservation=probe.reservation, worker="run"), ValueError("still")
    )
    assert group.reserve() == []
    clock.advance(60_000)
    group.settle(begin(group))
    assert group.circuit()[0] is Circuit.CLOSED
    assert work_off(group)
    assert group.progress().lag == 0


def begin_probe(store: Store, clock: FakeClock) -> tuple[Group, Delivery]:
    """A group whose circuit is half open, at work on its probe."""
    policy = RetryPolicy(max_attempts=1, breaker=BreakerPolicy(1, reset_after_ms=1_000))
    bus = on_one(store, clock, group_config(max_events=2, max_inflight=5, retry=policy))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(20))
    group.fail(begin(group), ValueError("down"))
    clock.advance(1_000)
    return group, begin(group)


@pytest.mark.parametrize(
    "left_out", [{"filtered": 2}, {"expired": 2}, {"filtered": 1, "expired": 1}]
)
def test_a_probe_of_which_nothing_was_processed_leaves_the_decision_to_the_next_one(
    store: Store, clock: FakeClock, left_out: dict[str, Any]
) -> None:
    group, probe = begin_probe(store, clock)
    group.settle(probe, **left_out)
    assert group.circuit()[0] is Circuit.HALF_OPEN
    assert group.progress().tally == Tally(dead_lettered=2, **left_out)
    (following,) = group.take("run", most=5)
    assert following.ranges != probe.ranges
    group.settle(following, filtered=1)
    assert group.circuit()[0] is Circuit.CLOSED, "one of its events was processed"
    assert len(group.reserve()) == 5


def test_what_was_left_out_does_not_make_up_for_failures(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config(max_events=2, retry=breaking()))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(20))
    group.fail(begin(group), ValueError("down"))
    group.settle(begin(group), filtered=2)
    assert group.circuit()[1].failures == 1
    group.settle(begin(group))
    assert group.circuit()[1].failures == 0


def test_failures_at_the_same_time_are_all_counted(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config(max_events=1, max_inflight=8, retry=breaking(100)))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(8))
    held = [
        group.lease(each.id, reservation=1, worker=str(number))
        for number, each in enumerate(group.reserve())
    ]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda each: group.fail(each, ValueError("down")), held))
    assert group.circuit()[1].failures == 8


def test_the_probe_is_small_if_it_is_made_of_new_events(store: Store, clock: FakeClock) -> None:
    policy = RetryPolicy(max_attempts=1, breaker=BreakerPolicy(1, reset_after_ms=1_000))
    bus = on_one(store, clock, group_config(max_events=50, retry=policy))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(100))
    group.fail(begin(group), ValueError("down"))
    clock.advance(1_000)
    (probe,) = group.reserve()
    assert probe.size == PROBE_EVENTS


def test_a_worker_that_is_there_takes_its_work_in_one_step(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config(max_events=2))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(3))
    (held,) = group.take("me")
    assert (held.state, held.worker, held.token, held.version) == (State.RUNNING, "me", 1, 1)
    assert store.delivery(held.id) == held
    group.fail(held, ValueError("bad"))
    clock.advance(1_000)
    (again,) = group.take("you")
    assert (again.id, again.attempt, again.token, again.worker) == (held.id, 2, 2, "you")
    with pytest.raises(LeaseLost):
        group.settle(held)
    group.settle(again)
    assert [each.size for each in group.take("me", most=5)] == [1]


def test_sending_a_group_back_makes_it_read_again(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config())
    group = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    work_off(group)
    (move,) = group.seek(AtOffset(7))
    assert (move.old, move.new, move.abandoned) == (11, 7, 0)
    progress = group.progress()
    assert (progress.published, progress.lag, progress.cursors[AT]) == (14, 4, 6)
    assert work_off(group) == [7, 8, 9, 10]
    assert group.progress().lag == 0


def test_what_a_group_skips_is_not_its_own(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config())
    group = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    group.seek("latest")
    progress = group.progress()
    assert (progress.published, progress.lag, progress.cursors[AT]) == (0, 0, 10)
    bus.publish_many("orders", numbers(1))
    assert work_off(group) == [11]


def test_a_dry_run_only_tells(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config())
    group = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    (move,) = group.seek("latest", dry_run=True)
    assert move.new == 11
    assert group.progress().lag == 10


def test_a_group_at_work_is_not_sent_elsewhere_unless_forced(
    store: Store, clock: FakeClock
) -> None:
    bus = open_bus(store, clock, group_config(max_events=6))
    group = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    held = begin(group)
    with pytest.raises(DeliveriesUnderWay, match="1 under way"):
        group.seek("earliest")
    moves = group.seek("earliest", [AT], force=True)
    assert [move.abandoned for move in moves] == [
        sum(len(part) for part in held.ranges if part.partition == 0)
    ]
    with pytest.raises(LeaseLost):
        group.settle(held)
    assert group.progress().lag == 10
    assert sorted(work_off(group)) == sorted([*range(1, 6)] * 2)
    assert group.progress().tally == Tally(processed=10)


def test_what_a_moved_group_keeps_of_a_delivery_goes_on_under_the_name_its_table_knows(
    store: Store, clock: FakeClock
) -> None:
    """Its worker may have committed all of it; under another name the rest would be rows twice."""
    bus = open_bus(store, clock, group_config())
    group = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    held = begin(group)
    assert {part.partition for part in held.ranges} == {0, 1}
    group.seek("latest", [AT], force=True)
    with pytest.raises(LeaseLost):
        group.renew(held)
    assert group.progress().lag == 5
    again = begin(group)
    assert (again.id, again.doubtful) == (held.id, True)
    assert again.token > held.token, "a table refuses the former worker"
    assert [part.partition for part in again.ranges] == [1]
    group.settle(again)
    assert (group.progress().lag, group.progress().tally) == (0, Tally(processed=5))


def test_what_waited_in_a_partition_waits_no_longer_when_its_group_is_sent_away(
    store: Store, clock: FakeClock
) -> None:
    bus = on_one(store, clock, group_config())
    group = bus.group("readers")
    bus.publish_many("orders", numbers(5))
    bad = covering([Place("orders", 0, 2)])
    others = covering(Place("orders", 0, offset) for offset in (1, 3, 4, 5))
    group.report(begin(group), Report(processed=others, failed=(Failed(bad, ValueError()),)))
    (move,) = group.seek("latest")
    assert move.abandoned == 1
    clock.advance(60_000)
    assert group.reserve() == []
    progress = group.progress()
    assert (progress.lag, progress.cursors[AT]) == (0, 5)


def test_some_partitions_only(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config())
    group = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    group.seek("latest", [TopicPartition("orders", 1)])
    assert group.progress().lag == 5
    with pytest.raises(UnknownTopic, match="orders/7"):
        group.seek("latest", [TopicPartition("orders", 7)])


def test_a_place_that_was_trimmed_is_refused(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config())
    bus.publish_many("orders", numbers(10))
    group = bus.group("readers")
    work_off(group)
    store.trim(AT, 5, 100)
    with pytest.raises(OffsetTrimmed):
        group.seek(AtOffset(3))
    group.seek("earliest")
    assert work_off(group) == [5, 6, 7, 8, 9, 10]


def test_groups_are_sent_by_time(store: Store, clock: FakeClock) -> None:
    bus = on_one(store, clock, group_config())
    group = bus.group("readers")
    bus.publish_many("orders", numbers(3))
    clock.advance(5_000)
    bus.publish_many("orders", numbers(3))
    work_off(group)
    group.seek(AtTime(START_MS + 1))
    assert work_off(group) == [4, 5, 6]


def test_a_delivery_knows_its_most_urgent_event(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(max_events=3), partitions=1)
    priorities: list[Priority] = ["low", "normal", "critical", "low", "high", "low", "low"]
    bus.publish_many("orders", [Message({}, priority=each) for each in priorities])
    group = bus.group("readers")
    assert [group.most_urgent(each) for each in group.reserve()] == [0, 1]
    assert store.most_urgent([OffsetRange("orders", 0, 1, 2), OffsetRange("orders", 0, 4, 4)]) == 2
    assert store.most_urgent([OffsetRange("orders", 0, 8, 9)]) is None
    assert store.most_urgent([]) is None


def test_who_watches_a_worker_may_keep_its_lease_late_until_the_work_is_handed_on(
    store: Store, clock: FakeClock
) -> None:
    bus = open_bus(store, clock)
    bus.publish_many("orders", numbers(3))
    group = bus.group("readers")
    held = begin(group)
    clock.advance(1_000_000)
    with pytest.raises(LeaseLost):
        group.renew(held)
    assert group.keep(held).due_ms == clock() + 5_000
    clock.advance(5_000)
    group.reserve()  # takes it back, and lets it wait
    with pytest.raises(LeaseLost):
        group.keep(held)
    clock.advance(1_000)
    again = begin(group, "another run")
    with pytest.raises(LeaseLost):
        group.keep(held)
    group.settle(again)
    with pytest.raises(LeaseLost):
        group.keep(again)
    assert group.progress().tally == Tally(processed=3)


def test_what_a_group_does_not_want_is_counted_for_who_cannot(
    store: Store, clock: FakeClock
) -> None:
    bus = open_bus(store, clock, group_config(filter=EventFilter(exists=("mail",))))
    bus.publish_many("orders", [Message({}, attributes={"mail": n % 2}) for n in range(4)])
    bus.publish_many("orders", [Message({}, attributes={"letter": True}) for _ in range(3)])
    group = bus.group("readers")
    assert group.unwanted(begin(group)) == 3
