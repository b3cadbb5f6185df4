"""Deliveries of every store: one group's events, each handed on until it is settled."""

from dataclasses import replace

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.event import Message
from dagster_bus.core.groups import Group
from dagster_bus.core.recovering import Worker
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import Change, Store, Tally
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicConfig, TopicPartition
from dagster_bus.core.window import HOUR_MS, HOURLY
from dagster_bus.errors import (
    BusError,
    LeaseLost,
    ReservationLost,
    StaleState,
    UnknownDelivery,
    UsageError,
)
from tests.support.builders import (
    FakeClock,
    append,
    begin,
    group_config,
    new_batch,
    numbers,
    open_bus,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(store: Store, clock: FakeClock) -> Bus:
    return open_bus(store, clock, group_config(), group_config(name="others"))


@pytest.fixture
def group(bus: Bus) -> Group:
    return bus.group("readers")


def start(group: Group, delivery: Delivery, worker: str = "run") -> Delivery:
    return group.lease(delivery.id, reservation=delivery.reservation, worker=worker)


def test_new_events_are_reserved_once(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(10))
    (delivery,) = group.reserve()
    assert delivery.size == 10
    assert {part.partition for part in delivery.ranges} == {0, 1}
    assert group.reserve() == []


def test_a_backlog_is_cut_into_deliveries_up_to_the_limit_in_flight(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(350))
    assert [delivery.size for delivery in group.reserve()] == [100, 100]
    assert group.reserve() == []


def test_a_settled_delivery_makes_room_and_moves_the_cursor(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(350))
    first, second = group.reserve()
    group.settle(start(group, second), filtered=30)
    assert group.progress().tally == Tally(processed=70, filtered=30)
    for part in first.ranges:
        cursor = group.progress().cursors[TopicPartition(part.topic, part.partition)]
        assert cursor == part.first - 1, "the cursor stands before the oldest unsettled event"
    group.settle(start(group, first))
    assert [delivery.size for delivery in group.reserve()] == [100, 50]


def test_the_head_of_each_partition_shows_its_own_events_time(
    store: Store, bus: Bus, clock: FakeClock
) -> None:
    for partition in (0, 1):
        append(store, new_batch("orders", [partition]), clock() + partition)
    view = store.view("readers", ["orders"], now_ms=clock(), due_limit=1)
    assert [head.frontier_ts for head in view.heads] == [clock(), clock() + 1]


def test_no_delivery_crosses_the_edge_of_a_window(bus: Bus, group: Group, clock: FakeClock) -> None:
    bus.publish_many("orders", numbers(6))
    clock.advance(HOUR_MS)
    bus.publish_many("orders", numbers(4))
    earlier, later = group.reserve()
    assert (earlier.size, later.size) == (6, 4)
    assert later.window == HOURLY.at(clock()).key
    assert earlier.window == HOURLY.at(clock() - HOUR_MS).key


def test_groups_do_not_see_each_other(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(10))
    group.settle(start(group, group.reserve()[0]))
    assert bus.group("others").progress().lag == 10
    assert [delivery.size for delivery in bus.group("others").reserve()] == [10]


def test_a_reservation_that_nobody_takes_up_is_made_again(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    (lost,) = group.reserve()
    clock.advance(9_999)
    assert group.reserve() == []
    clock.advance(1)
    (again,) = group.reserve()
    assert (again.id, again.attempt, again.reservation) == (lost.id, 1, 2)
    with pytest.raises(ReservationLost):
        start(group, lost)
    group.settle(start(group, again))
    assert group.progress().lag == 0


def test_a_worker_that_is_on_its_way_gets_more_time(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    (queued,) = group.reserve()
    clock.advance(10_000)
    assert group.reserve(look=lambda _: Worker.COMING) == []
    assert start(group, queued).state is State.RUNNING


def test_an_expired_lease_goes_to_the_next_worker_and_its_holder_is_refused(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    late = start(group, group.reserve()[0], "late")
    clock.advance(5_000)
    assert group.reserve() == [], "the failed attempt waits first"
    clock.advance(1_000)
    (again,) = group.reserve()
    held = start(group, again, "next")
    assert (held.attempt, held.token) == (2, 2)
    for refused in (group.settle, group.renew):
        with pytest.raises(LeaseLost):
            refused(late)
    with pytest.raises(LeaseLost):
        group.fail(late, ValueError("too late"))
    done = group.settle(held)
    assert [error.type for error in done.errors] == ["WorkerGone"]
    assert done.errors[0].worker == "late"
    assert group.progress().tally == Tally(processed=10)


def test_heartbeats_keep_a_lease(bus: Bus, group: Group, clock: FakeClock) -> None:
    bus.publish_many("orders", numbers(10))
    held = start(group, group.reserve()[0])
    for _ in range(10):
        clock.advance(4_000)
        group.renew(held)
        assert group.reserve() == []
    group.settle(held)
    assert group.progress().lag == 0


def test_a_worker_known_to_be_gone_is_not_waited_for(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(10))
    held = start(group, group.reserve()[0])
    group.reserve(look=lambda _: Worker.GONE)
    with pytest.raises(LeaseLost):
        group.settle(held)


def test_a_failed_delivery_waits_by_the_policy_and_the_rest_flows_on(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    held = start(group, group.reserve()[0])
    failed = group.fail(held, ValueError("bad"))
    assert (failed.state, failed.due_ms) == (State.WAITING, clock() + 1_000)
    bus.publish_many("orders", numbers(5))
    assert [delivery.size for delivery in group.reserve()] == [5]
    clock.advance(999)
    assert group.reserve() == []
    clock.advance(1)
    assert [(each.id, each.attempt) for each in group.reserve()] == [(held.id, 2)]


def test_the_last_failure_puts_every_event_into_the_dead_letters_with_its_story(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    published = bus.publish_many("orders", numbers(10))
    for attempt in (1, 2, 3):
        (delivery,) = group.reserve()
        group.fail(start(group, delivery, f"run-{attempt}"), ValueError(f"bad {attempt}"))
        clock.advance(60_000)
    assert group.reserve() == []
    progress = group.progress()
    assert progress.tally == Tally(dead_lettered=10)
    assert progress.lag == 0
    letters = bus.dead_letters("readers").list()
    assert sorted(letter.event.id for letter in letters) == sorted(at.id for at in published)
    assert sorted(letter.event.payload["n"] for letter in letters) == list(range(10))
    for letter in letters:
        assert [error.message for error in letter.errors] == ["bad 1", "bad 2", "bad 3"]
        assert [error.worker for error in letter.errors] == ["run-1", "run-2", "run-3"]
    assert bus.dead_letters("readers").counts() == {letters[0].fingerprint: 10}
    assert bus.dead_letters("others").list() == []


def test_events_that_the_group_does_not_want_are_filtered_and_never_dead(
    store: Store, clock: FakeClock
) -> None:
    config = group_config(filter=EventFilter({"channel": "web"}), retry=RetryPolicy(max_attempts=1))
    bus = open_bus(store, clock, config)
    channels = ["web", "phone", "web", "shop", "web"]
    bus.publish_many("orders", [Message({}, attributes={"channel": name}) for name in channels])
    group = bus.group("readers")
    group.fail(start(group, group.reserve()[0]), ValueError("bad"))
    assert group.progress().tally == Tally(filtered=2, dead_lettered=3)
    assert [x.event.attributes for x in bus.dead_letters("readers").list()] == [
        {"channel": "web"}
    ] * 3


def test_a_worker_that_is_told_to_stop_hands_its_work_back(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(10))
    for _ in range(5):  # more often than there are attempts
        (delivery,) = group.reserve()
        held = start(group, delivery)
        assert held.attempt == 1
        group.hand_back(held)
        with pytest.raises(LeaseLost):
            group.settle(held)
    assert group.progress().tally == Tally()


def test_a_worker_that_cannot_begin_hands_its_work_back_for_a_while(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    (delivery,) = group.reserve()
    group.hand_back(start(group, delivery), wait_ms=5_000, looked=True)
    clock.advance(4_999)
    assert group.reserve() == []
    clock.advance(1)
    (again,) = group.reserve()
    assert (again.id, again.attempt, again.looks) == (delivery.id, 1, 1)


def test_a_vanished_worker_is_never_the_one_who_gives_up(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    """It may have done the work before it vanished: the next one is to look."""
    bus.publish_many("orders", numbers(10))
    for _ in range(3):
        held = start(group, group.reserve()[0])
        assert not group.is_exhausted(held)
        clock.advance(5_000)
        group.reserve()
        clock.advance(60_000)
    assert group.progress().tally == Tally()
    looking = start(group, group.reserve()[0])
    assert group.is_exhausted(looking)
    clock.advance(5_000)
    assert group.reserve() == [], "the one who looked vanished too"
    clock.advance(60_000)
    last = start(group, group.reserve()[0])
    assert [error.type for error in last.errors] == ["WorkerGone"] * 3
    group.give_up(last)
    assert group.progress().tally == Tally(dead_lettered=10)
    assert len(bus.dead_letters("readers").list()) == 10


def test_what_a_vanished_worker_had_done_can_be_settled_when_no_attempt_is_left(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    for _ in range(3):
        start(group, group.reserve()[0])
        clock.advance(5_000)
        group.reserve()
        clock.advance(60_000)
    group.settle(start(group, group.reserve()[0]))
    assert group.progress().tally == Tally(processed=10)


def test_a_topic_that_a_group_no_longer_reads_stays_in_its_account(
    store: Store, clock: FakeClock
) -> None:
    topics = [TopicConfig("orders", 1), TopicConfig("stock", 1)]
    store.declare(topics)
    both = Bus(store, topics, [group_config(topics=("orders", "stock"))], clock)
    both.publish_many("orders", numbers(3))
    both.publish_many("stock", numbers(4))
    wide = both.group("readers")
    for delivery in wide.reserve():
        wide.settle(start(wide, delivery))
    both.publish_many("stock", numbers(5))
    narrow = Bus(store, topics, [group_config(topics=("orders",))], clock).group("readers")
    assert (narrow.progress().published, narrow.progress().lag) == (7, 0)
    assert (wide.progress().published, wide.progress().lag) == (12, 5)
    store.trim(TopicPartition("stock", 0), 10, 100)
    assert (narrow.progress().published, narrow.progress().lag) == (7, 0)


def test_events_of_a_clock_that_was_ahead_wait_until_it_is_right(
    store: Store, bus: Bus, group: Group, clock: FakeClock
) -> None:
    append(store, new_batch("orders", [0]), clock() + 3 * HOUR_MS)
    append(store, new_batch("orders", [1]), clock())
    (now,) = group.reserve()
    assert [part.partition for part in now.ranges] == [1]
    clock.advance(3 * HOUR_MS)
    assert any(part.partition == 0 for each in group.reserve() for part in each.ranges)


def test_a_clock_from_before_the_first_window_publishes_nothing(bus: Bus, clock: FakeClock) -> None:
    clock.now_ms = 5
    with pytest.raises(BusError, match="clock is wrong"):
        bus.publish("orders", {})
    assert list(bus.read("orders", 0)) == []


@pytest.mark.parametrize("first", [0, -1, 1 << 40])
def test_what_is_not_an_offset_is_refused(bus: Bus, first: int) -> None:
    with pytest.raises(UsageError, match="not an offset"):
        bus.read("orders", 0, first)


def test_dead_letters_are_listed_newest_first_and_in_pages(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    for _ in range(3):
        group.fail(start(group, group.reserve()[0]), ValueError("bad"))
        clock.advance(60_000)
    first = bus.dead_letters("readers").list(limit=4)
    rest = bus.dead_letters("readers").list(limit=100, before=first[-1].id)
    ids = [letter.id for letter in [*first, *rest]]
    assert len(ids) == 10
    assert ids == sorted(ids, reverse=True)


def test_a_change_decided_on_an_old_state_is_refused_as_a_whole(
    store: Store, bus: Bus, group: Group
) -> None:
    bus.publish_many("orders", numbers(10))
    (delivery,) = group.reserve()
    held = start(group, delivery)
    stale = replace(held, version=held.version)
    change = Change(group="readers", deliveries=(stale,), done=Tally(processed=10))
    with pytest.raises(StaleState):
        store.commit(change)
    with pytest.raises(StaleState):
        store.commit(
            Change(group="readers", frontiers={TopicPartition("orders", 0): 1}, expected_version=0)
        )
    assert group.progress().tally == Tally()
    assert store.delivery(delivery.id) == held


def test_two_ticks_at_once_reserve_an_event_once(
    store: Store, bus: Bus, group: Group, clock: FakeClock
) -> None:
    """The second tick decides on a view from before the first one's commit."""
    bus.publish_many("orders", numbers(10))
    old_view = store.view("readers", ["orders"], now_ms=clock(), due_limit=1)
    (delivery,) = group.reserve()
    again = replace(delivery, id="second", version=1)
    frontiers = {TopicPartition(part.topic, part.partition): part.last + 1 for part in again.ranges}
    with pytest.raises(StaleState):
        store.commit(
            Change(
                group="readers",
                frontiers=frontiers,
                expected_version=old_view.version,
                deliveries=(again,),
            )
        )
    with pytest.raises(UnknownDelivery):
        store.delivery("second")


def test_a_delivery_survives_a_change_of_process(
    store: Store, bus: Bus, group: Group, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(10))
    held = start(group, group.reserve()[0])
    failed = group.fail(held, ValueError("bad"))
    assert store.delivery(held.id) == failed
    assert store.delivery(held.id).ranges == held.ranges
    assert all(isinstance(part, OffsetRange) for part in store.delivery(held.id).ranges)


def kept(store: Store, held: Delivery) -> list[Delivery]:
    return store.deliveries([held.id])


@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_done_is_kept_only_where_a_table_is_to_recognise_it(
    store: Store, clock: FakeClock, lasting: bool
) -> None:
    bus = open_bus(store, clock, group_config(lasting=lasting))
    group = bus.group("readers")
    bus.publish("orders", 1)
    held = begin(group)
    group.settle(held)
    assert [each.outcome for each in kept(store, held)] == [Outcome.PROCESSED] * lasting
    with pytest.raises(LeaseLost):
        group.settle(held)
    with pytest.raises(LeaseLost):
        group.renew(held)
    assert group.progress().tally == Tally(processed=1)


def test_what_a_dead_letter_tells_of_is_kept(store: Store, clock: FakeClock) -> None:
    config = group_config(lasting=False, retry=RetryPolicy(max_attempts=1))
    bus = open_bus(store, clock, config)
    group = bus.group("readers")
    bus.publish("orders", 1)
    held = begin(group)
    group.fail(held, ValueError("bad luck"))
    (letter,) = bus.dead_letters("readers").list()
    assert [error.message for error in letter.errors] == ["bad luck"]
    assert [*bus.dead_letters("readers").redrive()]
    group.settle(begin(group))
    assert bus.dead_letters("readers").show(letter.id).errors == letter.errors
