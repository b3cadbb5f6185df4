"""A group's rules, as declared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_bus.core.delivery import OnExhausted
from dagster_bus.core.position import Start
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.topic import EventFilter
from dagster_bus.core.window import HOURLY, Windows


class Order(StrEnum):
    """What waits behind an event that failed."""

    NONE = "none"
    KEY = "key"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    name: str
    topics: tuple[str, ...]
    filter: EventFilter = field(default_factory=EventFilter)
    start: Start = "earliest"
    """Where the group begins in a partition that is new to it."""
    order: Order = Order.NONE
    max_events: int = 50_000
    max_bytes: int | None = None
    max_wait_ms: int = 0
    """How long a batch that is not full waits for more events."""
    max_inflight: int = 2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_exhausted: OnExhausted = OnExhausted.DEAD_LETTER
    windows: Windows = HOURLY
    """A delivery's events lie in one of them; a delivery that is there keeps the one it has."""
    launch_timeout_ms: int = 120_000
    lease_ms: int = 60_000
    lasting: bool = True
    """Whether each step of a delivery must survive a power cut, as it must where a table is to
    recognise it. Where it need not, events of the last moments are delivered again."""
    sticky_ms: int = 0
    """How long new events of a partition wait for the worker that took those before them, unless it
    is gone; 0 if anybody may take them at once."""
    mirrors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The topics whose dead letters are mirrored; for each its mirrors, with the number of their
    partitions."""
