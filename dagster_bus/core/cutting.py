"""Cutting many events into batches that lie in one window each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dagster_bus.core.ranges import Ranges
from dagster_bus.core.store import Store
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import Window, Windows


def cut(
    store: Store, spans: Mapping[TopicPartition, OffsetRange], max_events: int, windows: Windows
) -> Iterator[tuple[Window, Ranges]]:
    """The events of some partitions, window by window, in pieces of so many events at most."""
    left = dict(spans)
    while left:
        times = {at: store.read(span, 1)[0].ts for at, span in left.items()}
        window = windows.at(min(times.values()))
        ends = store.offsets_at(list(left), window.end_ms)
        inside = [
            replace(span, last=min(span.last, ends[at] - 1))
            for at, span in left.items()
            if ends[at] > span.first
        ]
        yield from ((window, ranges) for ranges in _pieces(inside, max_events))
        left = {
            at: replace(span, first=max(span.first, ends[at]))
            for at, span in left.items()
            if span.last >= ends[at]
        }


def _pieces(ranges: Iterable[OffsetRange], max_events: int) -> Iterator[Ranges]:
    piece: list[OffsetRange] = []
    room = max_events
    for part in ranges:
        rest = part
        while len(rest) > room:
            yield (*piece, replace(rest, last=rest.first + room - 1))
            rest = replace(rest, first=rest.first + room)
            piece, room = [], max_events
        piece.append(rest)
        room -= len(rest)
        if not room:
            yield tuple(piece)
            piece, room = [], max_events
    if piece:
        yield tuple(piece)
