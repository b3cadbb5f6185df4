"""Sending a group to another place in its topics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dagster_bus.core import delivery as life
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.position import Start, first_offsets
from dagster_bus.core.ranges import Ranges, count
from dagster_bus.core.reporting import Moment
from dagster_bus.core.store import Change, PartitionHead, Store
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import DeliveriesUnderWay, UnknownTopic


@dataclass(frozen=True, slots=True)
class Move:
    """What seeking does in one partition."""

    partition: TopicPartition
    old: int
    """The first offset that the group had not taken yet."""
    new: int
    abandoned: int
    """Events of deliveries that were open here, and are not any more."""


def seek(
    config: GroupConfig,
    store: Store,
    moment: Moment,
    start: Start,
    partitions: Iterable[TopicPartition] | None,
    *,
    force: bool,
    dry_run: bool,
) -> list[Move]:
    """Decide on what is there now, and commit. Raises StaleState if that has changed meanwhile."""
    view = store.view(config.name, config.topics, now_ms=moment.now_ms, due_limit=0)
    heads = _chosen(view.heads, partitions)
    touched = [each for each in store.open_deliveries(config.name) if _touches(each, heads)]
    under_way = [each for each in touched if each.in_flight]
    if under_way and not force:
        raise DeliveriesUnderWay(
            f"group {config.name} is at work in these partitions ({len(under_way)} under way); "
            "wait until they are done, or force it: their workers are then refused"
        )
    bounds = {at: each for at, each in store.bounds(config.topics).items() if at in heads}
    places = first_offsets(start, store, bounds)
    abandoned = {at: count(_inside(touched, at)) for at in heads}
    moves = [Move(at, head.frontier, places[at], abandoned[at]) for at, head in heads.items()]
    if not dry_run:
        store.commit(
            Change(
                group=config.name,
                deliveries=tuple(_left(touched, heads, moment)),
                frontiers={move.partition: move.new for move in moves},
                shifts={move.partition: move.new - move.old + move.abandoned for move in moves},
                expected_version=view.version,
            )
        )
    return moves


def _chosen(
    heads: Iterable[PartitionHead], partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, PartitionHead]:
    known = {head.partition: head for head in heads}
    if partitions is None:
        return known
    wanted = list(partitions)
    for at in wanted:
        if at not in known:
            raise UnknownTopic(f"the group does not read {at.topic}/{at.partition}")
    return {at: known[at] for at in wanted}


def _touches(delivery: Delivery, heads: Mapping[TopicPartition, PartitionHead]) -> bool:
    """Redriven events stay as they are: they are read from the dead letters."""
    return not delivery.redriven and any(
        (part.topic, part.partition) in heads for part in delivery.ranges
    )


def _inside(deliveries: Iterable[Delivery], at: TopicPartition) -> Ranges:
    return tuple(
        part for each in deliveries for part in each.ranges if (part.topic, part.partition) == at
    )


def _left(
    deliveries: Iterable[Delivery],
    heads: Mapping[TopicPartition, PartitionHead],
    moment: Moment,
) -> Iterable[Delivery]:
    """What becomes of deliveries. One that has events elsewhere too goes on with those, under its
    own name: a worker may have brought it into a table, and its successor is to find it there."""
    for each in deliveries:
        rest = tuple(part for part in each.ranges if (part.topic, part.partition) not in heads)
        if rest:
            left = life.narrowed(each, rest, now_ms=moment.now_ms)
            yield life.put_aside(left, now_ms=moment.now_ms)
        else:
            yield life.abandon(each, now_ms=moment.now_ms)
