"""A group's events as a queue for people."""

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Message
from dagster_bus.core.groups import Group
from dagster_bus.core.ranges import Place
from dagster_bus.core.store import Store, Tally
from dagster_bus.core.topic import EventFilter, TopicPartition
from dagster_bus.core.window import HOUR_MS
from dagster_bus.errors import DeliveriesUnderWay, UnknownEvent
from tests.support.builders import FakeClock, begin, group_config, numbers, open_bus

AT = TopicPartition("orders", 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(store: Store, clock: FakeClock) -> Bus:
    return open_bus(store, clock, group_config(), partitions=1)


@pytest.fixture
def group(bus: Bus) -> Group:
    return bus.group("readers")


def at(*offsets: int) -> list[Place]:
    return [Place("orders", 0, offset) for offset in offsets]


def offsets(group: Group) -> list[int]:
    return [event.offset for event in group.pending()]


def test_what_is_pending_comes_most_urgent_first_and_then_oldest_first(
    bus: Bus, group: Group
) -> None:
    names = ["low", "normal", "critical", "high", "critical"]
    bus.publish_many("orders", [Message({}, priority=name) for name in names])  # type: ignore[arg-type]
    assert offsets(group) == [3, 5, 4, 2, 1]


def test_events_that_are_not_wanted_or_expired_are_not_pending(
    store: Store, clock: FakeClock
) -> None:
    bus = open_bus(store, clock, group_config(filter=EventFilter(keys=("a",))), partitions=1)
    bus.publish_many("orders", [Message(1, key="a"), Message(2, key="b"), Message(3, "a", ttl_s=1)])
    clock.advance(1_000)
    assert offsets(bus.group("readers")) == [1]


def test_events_are_acknowledged_one_by_one_in_any_order(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(6))
    assert group.acknowledge(at(4)) == 1
    assert offsets(group) == [1, 2, 3, 5, 6]
    assert group.progress().cursors[AT] == 0
    assert group.acknowledge(at(1, 2, 6)) == 3
    assert offsets(group) == [3, 5]
    assert group.progress().cursors[AT] == 2
    assert group.acknowledge(at(3, 5)) == 2
    assert group.progress().tally == Tally(processed=6)
    assert (group.progress().lag, group.progress().cursors[AT]) == (0, 6)
    assert group.reserve() == []


def test_what_was_passed_over_is_still_delivered(bus: Bus, group: Group, clock: FakeClock) -> None:
    bus.publish_many("orders", numbers(2))
    clock.advance(HOUR_MS)
    bus.publish_many("orders", numbers(2))
    group.acknowledge(at(4))
    first, second = group.reserve()
    assert [(each.size, each.window) for each in (first, second)] == [
        (2, first.window),
        (1, second.window),
    ]
    assert first.window != second.window


def test_an_event_is_acknowledged_once(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(2))
    group.acknowledge(at(1))
    for wrong in (at(1), at(9), at(2, 1), [Place("stock", 0, 1)]):
        with pytest.raises(UnknownEvent):
            group.acknowledge(wrong)
    assert group.progress().tally == Tally(processed=1)


def test_what_somebody_works_on_is_left_alone(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(2))
    held = begin(group)
    with pytest.raises(DeliveriesUnderWay, match="run works on"):
        group.acknowledge(at(1))
    bus.publish_many("orders", numbers(3))
    assert group.acknowledge() == 3
    group.settle(held)
    assert group.progress().tally == Tally(processed=5)


def test_all_that_waits_is_acknowledged_at_once(bus: Bus, group: Group) -> None:
    bus.publish_many("orders", numbers(5))
    group.fail(begin(group), ValueError("bad"))
    bus.publish_many("orders", numbers(5))
    assert group.acknowledge() == 10
    assert group.acknowledge() == 0
    assert group.progress().lag == 0
