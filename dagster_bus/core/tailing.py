"""Reading several partitions together, by time, up to the end or for as long as events come."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from dagster_bus.core.event import Event
from dagster_bus.core.position import Start, first_offsets
from dagster_bus.core.store import Bounds, Listener, Store
from dagster_bus.core.topic import OffsetRange, TopicPartition

LOOK_EVERY_S = 1.0
"""A listener tells of appends at once; this is how often to ask whether to go on."""

_by_time = attrgetter("ts", "topic", "partition", "offset")


def read_all(store: Store, topics: Sequence[str], start: Start) -> Iterator[Event]:
    """All events of the topics from a start to the present end, in the order of time."""
    bounds = store.bounds(topics)
    yield from _between(store, first_offsets(start, store, bounds), bounds)


def follow(
    store: Store, topics: Sequence[str], start: Start, go_on: Callable[[], bool]
) -> Iterator[Event]:
    """As `read_all`, and then whatever is appended, as soon as it is, while `go_on` says so.

    Within what is there at one moment events come in the order of time."""
    with store.listen() as listener:
        bounds = store.bounds(topics)
        positions = first_offsets(start, store, bounds)
        while True:
            for event in _between(store, positions, bounds):
                positions[TopicPartition(event.topic, event.partition)] = event.offset + 1
                yield event
            if not _woken(listener, go_on):
                return
            bounds = store.bounds(topics)


def _woken(listener: Listener, go_on: Callable[[], bool]) -> bool:
    while go_on():
        if listener.wait(LOOK_EVERY_S):
            return True
    return False


def _between(
    store: Store, positions: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds]
) -> Iterator[Event]:
    spans = [
        OffsetRange(*at, positions[at], each.end - 1)
        for at, each in bounds.items()
        if positions[at] < each.end
    ]
    logs = (store.iterate(span, shared_by=len(spans)) for span in spans)
    return heapq.merge(*logs, key=_by_time)
