"""Which events a group's next deliveries take. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.group_config import Order
from dagster_bus.core.ranges import Ranges, without
from dagster_bus.core.store import PartitionHead
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import Window, Windows


def free_heads(
    heads: Sequence[PartitionHead], in_flight: Iterable[Delivery], order: Order
) -> list[PartitionHead]:
    """The partitions that new events may be taken from. To keep the order of keys, one delivery at
    a time works on a partition; to keep a partition's own order, none may be open there at all."""
    if order is Order.NONE:
        return list(heads)
    if order is Order.PARTITION:
        return [head for head in heads if not head.is_held]
    busy = {(part.topic, part.partition) for each in in_flight for part in each.ranges}
    return [head for head in heads if head.partition not in busy]


def open_to(
    worker: str,
    heads: Sequence[PartitionHead],
    *,
    sticky_ms: int,
    now_ms: int,
    is_gone: Callable[[str], bool],
) -> list[PartitionHead]:
    """The partitions whose new events a worker may take. A partition stays with whoever took its
    last events, until that one is gone, or lets events wait for too long."""
    return [
        head
        for head in heads
        if head.owner in (None, worker)
        or head.frontier_ts is None
        or not head.frontier_ts <= now_ms < head.frontier_ts + sticky_ms
        or is_gone(head.owner)
    ]


def next_window(heads: Sequence[PartitionHead], now_ms: int, windows: Windows) -> Window | None:
    """The window of the oldest event that was never reserved, or None if there is no such event.

    A window that has not begun by this clock is left alone: a clock that was ahead stamped it."""
    times = [head.frontier_ts for head in heads if head.waiting and head.frontier_ts is not None]
    window = windows.at(min(times)) if times else None
    return window if window and window.start_ms <= now_ms else None


def next_spans(
    heads: Sequence[PartitionHead], window: Window, ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """All events of a window that were never reserved, from the partition on that has waited
    longest. `ends` says where the window ends in each partition; no range crosses it."""
    inside = [head for head in heads if belongs(head, window)]
    inside.sort(key=lambda head: (head.frontier_ts or 0, head.partition))
    return [
        OffsetRange(*head.partition, head.frontier, end - 1)
        for head in inside
        if (end := min(head.end, ends[head.partition])) > head.frontier
    ]


def first_of(spans: Iterable[OffsetRange], max_events: int) -> Ranges:
    """The first events of some ranges, so many at most."""
    ranges = []
    left = max_events
    for span in spans:
        if left:
            fits = len(span) <= left
            ranges.append(span if fits else replace(span, last=span.first + left - 1))
            left -= len(ranges[-1])
    return tuple(sorted(ranges))


def after(spans: Iterable[OffsetRange], taken: Ranges) -> list[OffsetRange]:
    """What is left for the next batch: first of the partitions that this one took nothing from."""
    served = {(part.topic, part.partition) for part in taken}
    left = without([*spans], taken)
    return sorted(left, key=lambda span: (span.topic, span.partition) in served)


def frontiers_after(taken: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Where a group stands once it has taken some events."""
    frontiers: dict[TopicPartition, int] = {}
    for part in taken:
        at = TopicPartition(part.topic, part.partition)
        frontiers[at] = max(part.last + 1, frontiers.get(at, 0))
    return frontiers


def waits_for_more(
    heads: Sequence[PartitionHead],
    window: Window,
    *,
    max_events: int,
    max_wait_ms: int,
    now_ms: int,
) -> bool:
    """Whether a batch should wait: it is not full, its oldest event has not waited for long, and
    its window is not over, so that more may come."""
    if not max_wait_ms or now_ms >= window.end_ms:
        return False
    inside = [head for head in heads if belongs(head, window)]
    if sum(head.waiting for head in inside) >= max_events:
        return False
    oldest_ms = min((head.frontier_ts or 0 for head in inside), default=0)
    return now_ms - oldest_ms < max_wait_ms


def belongs(head: PartitionHead, window: Window) -> bool:
    """Whether the next event of a partition lies in the window."""
    return head.frontier_ts is not None and head.frontier_ts < window.end_ms and head.waiting > 0
