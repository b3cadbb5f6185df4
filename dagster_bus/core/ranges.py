"""Arithmetic of offset ranges: what is left when some events are taken out. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dagster_bus.core.event import Event
from dagster_bus.core.topic import OffsetRange


class Place(NamedTuple):
    """Where an event stands."""

    topic: str
    partition: int
    offset: int


def place_of(event: Event) -> Place:
    return Place(event.topic, event.partition, event.offset)


Ranges = tuple[OffsetRange, ...]


def count(ranges: Iterable[OffsetRange]) -> int:
    return sum(len(part) for part in ranges)


def covering(places: Iterable[Place]) -> Ranges:
    """The fewest ranges that hold just these places."""
    ordered = sorted(set(places))
    if not ordered:
        return ()
    found: list[OffsetRange] = []
    first = 0
    for following, (topic, partition, offset) in enumerate(ordered, 1):
        if following < len(ordered) and ordered[following] == (topic, partition, offset + 1):
            continue
        found.append(OffsetRange(topic, partition, ordered[first].offset, offset))
        first = following
    return tuple(found)


def joined(ranges: Iterable[OffsetRange]) -> Ranges:
    """The same events in the fewest ranges, ordered; an event that is there twice counts once."""
    found: list[OffsetRange] = []
    for part in sorted(ranges):
        last = found[-1] if found else None
        if last and _touch(last, part):
            found[-1] = OffsetRange(*_at(last), last.first, max(last.last, part.last))
        else:
            found.append(part)
    return tuple(found)


def without(ranges: Sequence[OffsetRange], taken: Iterable[OffsetRange]) -> Ranges:
    """What is left of ordered, disjoint ranges when others are taken out of them."""
    cuts = joined(taken)
    starts = [(*_at(cut), cut.last) for cut in cuts]
    left: list[OffsetRange] = []
    for part in ranges:
        first = part.first
        for cut in cuts[bisect_right(starts, (*_at(part), first - 1)) :]:
            if _at(cut) != _at(part) or cut.first > part.last:
                break
            if cut.first > first:
                left.append(OffsetRange(*_at(part), first, cut.first - 1))
            first = max(first, cut.last + 1)
        if first <= part.last:
            left.append(OffsetRange(*_at(part), first, part.last))
    return tuple(left)


def within(ranges: Sequence[OffsetRange], bounds: Sequence[OffsetRange]) -> Ranges:
    """What of ordered, disjoint ranges lies inside others, which are ordered and disjoint too."""
    return without(ranges, without(ranges, bounds))


def halves(ranges: Sequence[OffsetRange]) -> tuple[Ranges, Ranges]:
    """The first half of some events and the second, which has one more if they are odd."""
    room = count(ranges) // 2
    first: list[OffsetRange] = []
    for part in ranges:
        if room > 0:
            last = min(part.last, part.first + room - 1)
            first.append(OffsetRange(*_at(part), part.first, last))
            room -= len(first[-1])
    return tuple(first), without(ranges, first)


def _at(part: OffsetRange) -> tuple[str, int]:
    return part.topic, part.partition


def _touch(one: OffsetRange, following: OffsetRange) -> bool:
    return _at(one) == _at(following) and following.first <= one.last + 1
