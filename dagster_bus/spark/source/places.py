"""From topics and places to offset ranges, by what the store holds just now."""

from collections.abc import Iterable, Mapping

from dagster_bus.core.store import Bounds, Store
from dagster_bus.core.topic import (
    OffsetRange,
    TopicConfig,
    TopicPartition,
    matching,
    require_pattern,
)
from dagster_bus.errors import OffsetTrimmed, UnknownTopic, UsageError
from dagster_bus.spark.source.options import EARLIEST, LATEST, Place
from dagster_bus.spec.hints import hint

Ends = dict[TopicPartition, int]
"""An offset of each partition."""


def chosen_topics(patterns: Iterable[str], store: Store) -> list[TopicConfig]:
    """The topics that names and patterns select. Raises UnknownTopic if one selects none."""
    topics = {topic.name: topic for topic in store.topics()}
    chosen: dict[str, TopicConfig] = {}
    for pattern in patterns:
        require_pattern(pattern)
        found = matching(pattern, topics)
        if not found:
            raise UnknownTopic(
                f"option topics: {pattern!r} selects none of the store's topics"
                f"{hint(pattern, topics)}"
            )
        chosen |= {name: topics[name] for name in found}
    return list(chosen.values())


def offsets_of(
    place: Place,
    store: Store,
    bounds: Mapping[TopicPartition, Bounds],
    *,
    fail_on_data_loss: bool = True,
) -> Ends:
    """The offset that a place means in each partition."""
    if place.time_ms is not None:
        return store.offsets_at(list(bounds), place.time_ms)
    if place.offsets is None:
        return {at: b.first if place.word == "earliest" else b.end for at, b in bounds.items()}
    asked = {
        TopicPartition(topic, partition): offset
        for topic, each in place.offsets.items()
        for partition, offset in each.items()
    }
    _require_same(asked, bounds, place.option)
    return {
        at: _offset(at, asked[at], each, place.option, fail_on_data_loss)
        for at, each in bounds.items()
    }


def ranges_between(start: Mapping[TopicPartition, int], end: Ends) -> list[OffsetRange]:
    """The events from one place to before another one; partitions without any are left out."""
    return [OffsetRange(*at, start[at], end[at] - 1) for at in sorted(end) if start[at] < end[at]]


def available(
    ends: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    *,
    fail_on_data_loss: bool,
) -> Ends:
    """Offsets to begin with, as far as retention has left them there."""
    for at, offset in ends.items():
        if fail_on_data_loss and offset < bounds[at].first:
            raise trimmed(at, offset, bounds[at].first)
    return {at: max(offset, bounds[at].first) for at, offset in ends.items()}


def trimmed(at: TopicPartition, asked: int, first: int) -> UsageError:
    error = OffsetTrimmed(*at, asked, first)
    return UsageError(f"{error}, or set the option failOnDataLoss to false")


def _offset(
    at: TopicPartition, asked: int, bounds: Bounds, option: str, fail_on_data_loss: bool
) -> int:
    if asked == EARLIEST:
        return bounds.first
    if asked == LATEST:
        return bounds.end
    if asked > bounds.end:
        raise UsageError(
            f"option {option}: {at.topic}/{at.partition} ends before offset {bounds.end}, and "
            f"{asked} is beyond it"
        )
    if asked < bounds.first and asked < 1:
        raise UsageError(f"option {option}: {asked} is not an offset; they begin with 1")
    if asked < bounds.first:
        if fail_on_data_loss:
            raise trimmed(at, asked, bounds.first)
        return bounds.first
    return asked


def _require_same(
    asked: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds], option: str
) -> None:
    """Every partition needs an offset: one that was forgotten would be read as a whole, or not."""
    for what, partitions in (
        ("has no offset for", bounds.keys() - asked.keys()),
        ("has an offset for what was not chosen or is not there:", asked.keys() - bounds.keys()),
    ):
        if partitions:
            names = ", ".join(f"{at.topic}/{at.partition}" for at in sorted(partitions))
            raise UsageError(f"option {option} {what} {names}")
