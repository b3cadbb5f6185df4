"""Named replays: frozen, beside the live group, whose cursors never move."""

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.group_config import Order
from dagster_bus.core.groups import Group
from dagster_bus.core.position import AtOffset, AtTime
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import Store, Tally
from dagster_bus.core.topic import TopicPartition
from dagster_bus.core.window import HOUR_MS
from dagster_bus.errors import OffsetTrimmed, ReplayExists, UnknownTopic, UsageError
from tests.support.builders import START_MS, FakeClock, group_config, numbers, open_bus

AT = TopicPartition("orders", 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(store: Store, clock: FakeClock) -> Bus:
    return open_bus(store, clock, group_config(max_events=4), partitions=1)


def work_off(group: Group) -> list[list[int]]:
    done = []
    while reserved := group.reserve(most=1):
        held = group.lease(reserved[0].id, reservation=reserved[0].reservation, worker="run")
        done.append([event.offset for event in group.events(held)])
        group.settle(held)
    return done


def test_a_replay_goes_through_its_events_and_the_live_group_stays_where_it_is(
    bus: Bus,
) -> None:
    live = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    work_off(live)
    before = live.progress()
    replay = bus.replay("readers", "again", start=AtOffset(3), end=AtOffset(10))
    bus.publish_many("orders", numbers(2))
    assert replay.progress().lag == 7
    assert work_off(replay) == [[3, 4, 5, 6], [7, 8, 9]]
    assert replay.progress().tally == Tally(processed=7)
    assert replay.progress().lag == 0
    assert live.progress().tally == before.tally
    assert live.progress().cursors == before.cursors
    assert work_off(live) == [[11, 12]]


def test_its_name_is_given_once_and_finds_it_again(bus: Bus) -> None:
    bus.publish_many("orders", numbers(3))
    bus.replay("readers", "again")
    with pytest.raises(ReplayExists, match="choose another name"):
        bus.replay("readers", "again")
    assert list(bus.replays("readers")) == ["again"]
    assert work_off(bus.replays("readers")["again"]) == [[1, 2, 3]]
    assert list(bus.replays("readers")) == ["again"]


def test_no_delivery_of_it_crosses_the_edge_of_a_window(bus: Bus, clock: FakeClock) -> None:
    for _ in range(3):
        bus.publish_many("orders", numbers(3))
        clock.advance(HOUR_MS)
    replay = bus.replay("readers", "hours", start=AtTime(START_MS), end=AtTime(clock() - HOUR_MS))
    assert work_off(replay) == [[1, 2, 3], [4, 5, 6]]


def test_several_partitions_or_some(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(), partitions=3)
    bus.publish_many("orders", numbers(9))
    one = bus.replay("readers", "one", partitions=[TopicPartition("orders", 2)])
    assert one.progress().lag == 3
    assert bus.replay("readers", "all").progress().lag == 9
    with pytest.raises(UnknownTopic):
        bus.replay("readers", "none", partitions=[TopicPartition("orders", 5)])


def test_what_fails_in_a_replay_is_the_replays_own_matter(store: Store, clock: FakeClock) -> None:
    config = group_config(retry=RetryPolicy(max_attempts=1))
    bus = open_bus(store, clock, config, partitions=1)
    bus.publish_many("orders", numbers(3))
    work_off(bus.group("readers"))
    replay = bus.replay("readers", "again")
    (delivery,) = replay.reserve()
    replay.fail(
        replay.lease(delivery.id, reservation=delivery.reservation, worker="run"), ValueError()
    )
    assert replay.progress().tally == Tally(dead_lettered=3)
    assert bus.group("readers").progress().tally == Tally(processed=3)
    assert bus.dead_letters("readers").list() == []


def test_retention_leaves_the_events_of_a_replay_alone(store: Store, bus: Bus) -> None:
    bus.publish_many("orders", numbers(6))
    work_off(bus.group("readers"))
    replay = bus.replay("readers", "again", start=AtOffset(4))
    store.trim(AT, 7, 100)
    assert work_off(replay) == [[4, 5, 6]]
    with pytest.raises(OffsetTrimmed):
        bus.replay("readers", "more", start=AtOffset(2))


@pytest.mark.parametrize("name", ["", "Again", "a~b", "a b"])
def test_a_name_is_plain(bus: Bus, name: str) -> None:
    bus.publish("orders", 1)
    with pytest.raises(UsageError, match="not a name for a replay"):
        bus.replay("readers", name)


def test_an_empty_replay_is_refused(bus: Bus) -> None:
    with pytest.raises(UsageError, match="nothing would be replayed"):
        bus.replay("readers", "again")
    assert bus.replays("readers") == {}


def test_where_order_counts_one_delivery_after_the_other_is_done(
    store: Store, clock: FakeClock
) -> None:
    config = group_config(order=Order.PARTITION, max_events=2, max_inflight=5)
    bus = open_bus(store, clock, config, partitions=1)
    bus.publish_many("orders", numbers(6))
    replay = bus.replay("readers", "again")
    assert len(replay.reserve()) == 1
