"""What a group publishes in the step that settles its delivery, on every store."""

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Message
from dagster_bus.core.recovering import Worker
from dagster_bus.core.store import Store, Tally
from dagster_bus.core.system import AUDIT
from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import InvalidEvent, LeaseLost
from tests.support.builders import FakeClock, group_config, numbers


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(store: Store, clock: FakeClock) -> Bus:
    topics = [TopicConfig("orders", 2), TopicConfig("results", 3), TopicConfig(AUDIT, 1)]
    store.declare(topics)
    return Bus(store, topics, [group_config()], clock)


def test_a_delivery_is_settled_and_its_results_are_published_in_one_step_or_neither(
    bus: Bus, clock: FakeClock
) -> None:
    bus.publish_many("orders", numbers(4))
    group = bus.group("readers")
    (reserved,) = group.reserve()
    late = group.lease(reserved.id, reservation=reserved.reservation, worker="late")
    batch = group.prepare("results", [Message({"n": n}, key=str(n)) for n in range(5)])
    assert list(bus.tail("results")) == [], "preparing appends nothing"
    clock.advance(group.config.lease_ms + 1)
    group.reserve(lambda _: Worker.GONE)
    clock.advance(group.config.retry.max_delay_ms)
    (again,) = group.reserve(lambda _: Worker.GONE)
    held = group.lease(again.id, reservation=again.reservation, worker="next")

    with pytest.raises(LeaseLost):
        group.settle(late, publishing=[batch])
    assert list(bus.tail("results")) == []
    assert group.progress().tally == Tally()

    group.settle(held, publishing=[batch])
    with pytest.raises(LeaseLost):
        group.settle(held, publishing=[batch])
    assert sorted(event.payload["n"] for event in bus.tail("results")) == [0, 1, 2, 3, 4]
    assert group.progress().tally == Tally(processed=4)
    told = [event.payload for event in bus.tail(AUDIT)]
    published = [each for each in told if each["action"] == "publish"]
    assert [(each["topic"], each["events"]) for each in published] == [
        ("orders", 4),
        ("results", 5),
    ]


def test_what_a_topic_would_refuse_is_found_before_anything_is_settled(bus: Bus) -> None:
    group = bus.group("readers")
    with pytest.raises(InvalidEvent, match="priority"):
        group.prepare("results", [Message({}, priority="soon")])  # type: ignore[arg-type]
