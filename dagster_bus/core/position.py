"""Where a reader begins: words, offsets and times, turned into offsets of partitions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dagster_bus.core.store import Bounds, Store
from dagster_bus.core.topic import LAST_OFFSET, TopicPartition
from dagster_bus.errors import OffsetTrimmed, UsageError


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first event at or after a time, in each partition."""

    ts_ms: int


Start = Literal["earliest", "latest"] | AtOffset | AtTime


def first_offsets(
    start: Start, store: Store, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """The offset to begin with in each partition; beyond the end means: what comes later.

    Raises OffsetTrimmed if an offset is asked for that is no longer there."""
    if isinstance(start, AtTime):
        return store.offsets_at(list(bounds), start.ts_ms)
    return {at: _first_offset(start, at, each) for at, each in bounds.items()}


def _first_offset(
    start: Literal["earliest", "latest"] | AtOffset, at: TopicPartition, bounds: Bounds
) -> int:
    if start == "earliest":
        return bounds.first
    if start == "latest":
        return bounds.end
    if not isinstance(start, AtOffset):
        raise UsageError(f"{start!r} is not a place to begin (earliest, latest, AtOffset, AtTime)")
    if not 1 <= start.offset <= LAST_OFFSET:
        raise UsageError(f"{start.offset} is not an offset; they begin with 1")
    if start.offset < bounds.first:
        raise OffsetTrimmed(*at, start.offset, bounds.first)
    return start.offset
