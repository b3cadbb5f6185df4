"""Which events a group's next delivery takes. Pure."""

from collections.abc import Mapping, Sequence

from dagster_bus.core.store import PartitionHead
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import Window, hour_of


def next_window(heads: Sequence[PartitionHead], now_ms: int) -> Window | None:
    """The window of the oldest event that was never reserved, or None if there is no such event.

    A window that has not begun by this clock is left alone: a clock that was ahead stamped it."""
    times = [head.frontier_ts for head in heads if head.waiting and head.frontier_ts is not None]
    window = hour_of(min(times)) if times else None
    return window if window and window.start_ms <= now_ms else None


def next_ranges(
    heads: Sequence[PartitionHead],
    window: Window,
    ends: Mapping[TopicPartition, int],
    max_events: int,
) -> tuple[OffsetRange, ...]:
    """At most `max_events` events of a window, from the partitions that have waited longest.

    `ends` says where the window ends in each partition; no range crosses it."""
    ranges = []
    left = max_events
    inside = [head for head in heads if belongs(head, window)]
    for head in sorted(inside, key=lambda head: (head.frontier_ts or 0, head.partition)):
        end = min(head.end, ends[head.partition], head.frontier + left)
        if end > head.frontier:
            ranges.append(OffsetRange(*head.partition, head.frontier, end - 1))
            left -= end - head.frontier
    return tuple(sorted(ranges))


def belongs(head: PartitionHead, window: Window) -> bool:
    """Whether the next event of a partition lies in the window."""
    return head.frontier_ts is not None and head.frontier_ts < window.end_ms and head.waiting > 0
