"""Retention and compaction: what the log lets go of, in small steps that hold up nobody.

Nothing is taken from under a group: events that a declared group has not settled stay, however old
they are, and the topic's rules catch up when it has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.store import Bounds, Store
from dagster_bus.core.topic import TopicConfig, TopicPartition

STEP = 5_000
"""Events deleted in one transaction: few enough for publishers not to notice."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done to one topic."""

    topic: str
    trimmed: int
    """Events deleted because of their age or the log's size."""
    compacted: int
    """Events deleted because a newer one has their key."""
    held: int
    """Events that should go and stay until a group has settled them."""
    by: tuple[str, ...]
    """The groups that they wait for."""


def maintain(
    store: Store, config: TopicConfig, groups: Iterable[GroupConfig], now_ms: int
) -> Maintained:
    """Apply a topic's rules as of now."""
    bounds = store.bounds([config.name])
    unsettled = _first_unsettled(store, config.name, groups)
    trimmed = compacted = held = 0
    by: set[str] = set()
    for at, each in bounds.items():
        wanted = _retained_from(store, config, at, each, now_ms)
        holders = {group: first for group, first in unsettled.get(at, {}).items() if first < wanted}
        first = min([wanted, *holders.values()])
        held += wanted - max(first, each.first) if holders else 0
        by |= holders.keys()
        trimmed += _trim(store, at, first)
        if config.compacted:
            before = min([each.end, *unsettled.get(at, {}).values()])
            compacted += _compact(store, at, before, now_ms - config.tombstone_ms)
    return Maintained(config.name, trimmed, compacted, held, tuple(sorted(by)))


def _first_unsettled(
    store: Store, topic: str, groups: Iterable[GroupConfig]
) -> dict[TopicPartition, dict[str, int]]:
    """For each partition, the first event that each of its groups has not settled."""
    found: dict[TopicPartition, dict[str, int]] = {}
    for group in groups:
        if topic in group.topics:
            cursors: Mapping[TopicPartition, int] = store.progress(group.name, [topic]).cursors
            for at, cursor in cursors.items():
                if at.topic == topic:
                    found.setdefault(at, {})[group.name] = cursor + 1
    return found


def _retained_from(
    store: Store, config: TopicConfig, at: TopicPartition, bounds: Bounds, now_ms: int
) -> int:
    """The first offset that the rules say to keep. A topic's size is shared by its partitions."""
    first = bounds.first
    if config.retain_ms is not None:
        first = max(first, store.offsets_at([at], now_ms - config.retain_ms)[at])
    if config.retain_bytes is not None:
        first = max(first, store.offset_keeping(at, config.retain_bytes // config.partitions))
    return first


def _trim(store: Store, at: TopicPartition, first: int) -> int:
    trimmed = 0
    while step := store.trim(at, first, STEP):
        trimmed += step
    return trimmed


def _compact(store: Store, at: TopicPartition, before: int, tombstones_before_ms: int) -> int:
    compacted = 0
    looked_to = None
    while True:
        step = store.compact(at, before, tombstones_before_ms, STEP)
        compacted += step.removed
        if step.compacted_to == looked_to and not step.removed:
            return compacted
        looked_to = step.compacted_to
