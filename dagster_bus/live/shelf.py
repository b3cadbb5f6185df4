"""The newest events of a store, for all who read them at about the same time.

Each group of a process that keeps up reads the same events a moment after the others. An event in
the log never changes, so that they can share what one of them has read.
"""

import threading
from bisect import bisect_left
from dataclasses import replace

from dagster_bus.core.event import Event
from dagster_bus.core.stepping import Page
from dagster_bus.core.store import Store
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import StoreUnavailable

MOST_EVENTS = 1_000
MOST_BYTES = 4 << 20
"""What is kept of a partition, and read of it at once, unless a single event has more."""


class _Kept:
    """Events `first` to `last` of a partition, those of them that are in the log."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.offsets: list[int] = []
        self.events: list[Event] = []
        self.bytes = 0

    def add(self, page: Page) -> None:
        """Keep what follows. If that is too much, what was there before goes."""
        most_bytes = self.bytes + page.most_bytes
        if len(self.events) + len(page.events) > MOST_EVENTS or most_bytes > MOST_BYTES:
            self.first, most_bytes = self.last + 1, page.most_bytes
            self.events, self.offsets = [], []
        self.events += page.events
        self.offsets += [event.offset for event in page.events]
        self.bytes, self.last = most_bytes, page.last

    def slice(self, span: OffsetRange) -> Page:
        last = min(span.last, self.last)
        first = bisect_left(self.offsets, span.first)
        return Page(self.events[first : bisect_left(self.offsets, last + 1)], last, self.bytes)


class Shelf:
    """Reads ranges of a store's log, each part of which it may have read before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: dict[TopicPartition, _Kept] = {}

    def read(self, span: OffsetRange) -> Page:
        """The events of a range, or of its first part if it is a large one."""
        at = TopicPartition(span.topic, span.partition)
        with self._lock:
            kept = self._kept.get(at)
            if kept and kept.first <= span.first and span.last <= kept.last:
                return kept.slice(span)
            if kept and span.first < kept.first and span.last <= kept.last:
                return self._load(span)  # somebody who is behind: the others are not
            if kept is None or not kept.first <= span.first <= kept.last + 1:
                kept = self._kept[at] = _Kept(span.first)
            page = self._load(replace(span, first=kept.last + 1))
            known = kept.slice(span)
            kept.add(page)
            most_bytes = known.most_bytes + page.most_bytes
            return Page([*known.events, *page.events], page.last, most_bytes)

    def time_of(self, at: TopicPartition, first: int, end: int) -> int | None:
        """The append time of the first of some events; None if none of them is left."""
        page = self.read(OffsetRange(*at, first, end - 1))
        return page.events[0].ts if page.events else None

    def _load(self, span: OffsetRange) -> Page:
        events: list[Event] = []
        size = 0
        for event in self._store.iterate(span):
            events.append(event)
            size += event.size
            is_enough = size > MOST_BYTES or len(events) >= MOST_EVENTS
            if is_enough or event.offset == span.last:
                return Page(events, event.offset, size)
        self._require_compacted(events[-1].offset + 1 if events else span.first, span)
        return Page(events, span.last, size)

    def _require_compacted(self, first: int, span: OffsetRange) -> None:
        """Of events that are said to be there and were not read, compaction must be the reason, and
        not a server that is behind."""
        at = TopicPartition(span.topic, span.partition)
        bounds = self._store.bounds([span.topic])[at]
        if bounds.compacted_to < span.last or bounds.end <= span.last:
            raise StoreUnavailable(f"{at.topic}/{at.partition}:{first}-{span.last} is not here yet")
