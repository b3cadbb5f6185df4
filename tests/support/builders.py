"""Small pieces that many tests need."""

from collections.abc import Iterable

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import NewEvent, uuid7
from dagster_bus.core.groups import GroupConfig
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicConfig
from dagster_bus.core.window import HOUR_MS

START_MS = 1_795_000_000_000 - 1_795_000_000_000 % HOUR_MS
"""A full hour, so that tests know where they are within a window."""


class FakeClock:
    """A clock that stands until it is moved."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


def new_event(topic: str, partition: int = 0, payload: str = "{}") -> NewEvent:
    return NewEvent(
        topic=topic,
        partition=partition,
        id=uuid7(START_MS),
        key=None,
        source=None,
        schema_version=1,
        attributes="{}",
        priority=2,
        idempotency_key=None,
        ttl_s=None,
        payload=payload,
        payload_sha256=None,
    )


def group_config(**changes: object) -> GroupConfig:
    """A group with short, exact times."""
    settings: dict[str, object] = {
        "name": "readers",
        "topics": ("orders",),
        "max_events": 100,
        "max_inflight": 2,
        "retry": RetryPolicy(max_attempts=3, base_delay_ms=1_000, jitter="none"),
        "launch_timeout_ms": 10_000,
        "lease_ms": 5_000,
        **changes,
    }
    return GroupConfig(**settings)  # type: ignore[arg-type]


def open_bus(store: Store, clock: FakeClock, *configs: GroupConfig, partitions: int = 2) -> Bus:
    """A bus with one topic, `orders`, and the given groups."""
    topics = [TopicConfig("orders", partitions)]
    store.declare(topics)
    return Bus(store, topics, configs or [group_config()], clock)


def numbers(count: int) -> Iterable[dict[str, int]]:
    return ({"n": n} for n in range(count))
