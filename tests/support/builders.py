"""Small pieces that many tests need."""

from collections.abc import Iterable, Sequence

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Batch, Published, uuid7s
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.groups import Group
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


def new_batch(
    topic: str,
    partitions: Sequence[int] = (0,),
    payloads: Sequence[str] | None = None,
    **columns: object,
) -> Batch:
    """Events for the given partitions, in that order."""
    count = len(partitions)
    texts = list(payloads) if payloads is not None else ["{}"] * count
    nothing = [None] * count
    batch = Batch(
        topic=topic,
        partitions=list(partitions),
        ids=uuid7s(START_MS, count),
        keys=nothing,
        sources=nothing,
        schema_versions=[1] * count,
        attributes=["{}"] * count,
        priorities=[2] * count,
        idempotency_keys=nothing,
        ttls=nothing,
        payloads=texts,
        payload_sha256s=nothing,
        sizes=[len(text.encode()) for text in texts],
    )
    return batch._replace(**columns)  # type: ignore[arg-type]


def append(store: Store, batch: Batch, now_ms: int = START_MS) -> list[Published]:
    """One batch, by itself."""
    (published,) = store.append([batch], now_ms)
    return published


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


def open_bus(
    store: Store, clock: FakeClock, *configs: GroupConfig, partitions: int = 2, **topic: object
) -> Bus:
    """A bus with one topic, `orders`, and the given groups."""
    topics = [TopicConfig("orders", partitions, **topic)]  # type: ignore[arg-type]
    store.declare(topics)
    return Bus(store, topics, configs or [group_config()], clock)


def numbers(count: int) -> Iterable[dict[str, int]]:
    return ({"n": n} for n in range(count))


def begin(group: Group, worker: str = "run") -> Delivery:
    """Take the next delivery of a group."""
    (held,) = group.take(worker)
    return held
