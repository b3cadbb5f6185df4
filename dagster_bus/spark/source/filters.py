"""What a query asks of topic, partition, offset and time, turned into smaller ranges.

Time never decreases along a partition, so a condition on it is one on offsets, exactly. Whatever
else a query asks is left to Spark.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from dagster_bus.core.topic import LAST_OFFSET, OffsetRange, TopicPartition

EVENT = "_event"
"""The envelope's column, where the payload's columns stand beside it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

OffsetsAt = Callable[[Sequence[TopicPartition], int], dict[TopicPartition, int]]
"""For each partition the first offset at or after a time in milliseconds, or the end."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A column that is never null, and the values from `least` to below `end`, if these are not
    None, or one of `among`."""

    column: str
    least: int | None = None
    end: int | None = None
    among: frozenset[Any] | None = None


def condition(filter_: Filter) -> Condition | None:
    """The condition that a filter is; None if it cannot be answered by ranges."""
    path = getattr(filter_, "attribute", ())
    column = path[-1] if path and path[:-1] in ((), (EVENT,)) else ""
    if column not in ("topic", "partition", "offset", "ts"):
        return None
    if isinstance(filter_, IsNotNull):
        return Condition(column)
    value: Any = getattr(filter_, "value", None)
    if isinstance(filter_, EqualTo | EqualNullSafe | In):
        values = value if isinstance(filter_, In) else (value,)
        return _one_of(column, values)
    bounds = _COMPARISONS.get(type(filter_))
    if bounds is None or column == "topic":
        return None
    return _between(column, value, *bounds)


def narrowed(
    ranges: Iterable[OffsetRange], conditions: Sequence[Condition], offsets_at: OffsetsAt
) -> list[OffsetRange]:
    """What is left of ranges under all conditions."""
    left = list(ranges)
    for each in conditions:
        left = [span for span in _under(each, left, offsets_at) if span.first <= span.last]
    return left


def _under(
    asked: Condition, ranges: Sequence[OffsetRange], offsets_at: OffsetsAt
) -> Iterable[OffsetRange]:
    if asked.column in ("topic", "partition"):
        return [span for span in ranges if _holds(asked, getattr(span, asked.column))]
    if asked.column == "offset":
        if asked.among is not None:
            among = [n for n in sorted(asked.among) if 1 <= n <= LAST_OFFSET]
            return [
                OffsetRange(span.topic, span.partition, n, n)
                for span in ranges
                for n in among
                if span.first <= n <= span.last
            ]
        return [_cut(span, asked.least, asked.end) for span in ranges]
    partitions = sorted({TopicPartition(span.topic, span.partition) for span in ranges})
    least = offsets_at(partitions, asked.least) if asked.least is not None else {}
    end = offsets_at(partitions, asked.end) if asked.end is not None else {}
    at = [TopicPartition(span.topic, span.partition) for span in ranges]
    return [_cut(span, least.get(at), end.get(at)) for at, span in zip(at, ranges, strict=True)]


def _holds(asked: Condition, value: Any) -> bool:
    if asked.among is not None:
        return value in asked.among
    return (asked.least is None or asked.least <= value) and (
        asked.end is None or value < asked.end
    )


def _cut(span: OffsetRange, least: int | None, end: int | None) -> OffsetRange:
    first = span.first if least is None else max(span.first, least)
    last = span.last if end is None else min(span.last, end - 1)
    return OffsetRange(span.topic, span.partition, first, last)


def _one_of(column: str, values: Iterable[Any]) -> Condition | None:
    """Nothing equals null, so that it is left out among others."""
    wanted = [value for value in values if value is not None]
    if column == "topic":
        usable = all(isinstance(value, str) for value in wanted)
    else:
        usable = all(type(value) is int for value in wanted)
    if column != "ts":
        return Condition(column, among=frozenset(wanted)) if usable else None
    if len(wanted) != 1 or not _is_moment(wanted[0]):
        return None
    us = _microseconds(wanted[0])
    if us % 1_000:
        return Condition(column, least=0, end=0)  # times are whole milliseconds
    return Condition(column, least=us // 1_000, end=us // 1_000 + 1)


def _between(column: str, value: Any, is_least: bool, with_it: bool) -> Condition | None:
    """`value` as the least one or the end. `with_it` tells whether it belongs to the values."""
    if column == "ts" and _is_moment(value):
        us = _microseconds(value)
        # Of whole milliseconds, those from a time on are those after any time just before it.
        whole = -(-us // 1_000) if is_least == with_it else us // 1_000 + 1
    elif type(value) is int and column != "ts":
        whole = value if is_least == with_it else value + 1
    else:
        return None
    return Condition(column, least=whole) if is_least else Condition(column, end=whole)


_COMPARISONS: dict[type[Filter], tuple[bool, bool]] = {
    GreaterThanOrEqual: (True, True),
    GreaterThan: (True, False),
    LessThan: (False, False),
    LessThanOrEqual: (False, True),
}


def _is_moment(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _microseconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
