"""When a group has dealt with all that was published before a moment. Pure."""

from collections.abc import Mapping

from dagster_bus.core.breaker import Circuit
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.store import GroupView, PartitionHead
from dagster_bus.core.topic import TopicPartition


def is_settled(
    view: GroupView, ends: Mapping[TopicPartition, int], config: GroupConfig, now_ms: int
) -> bool:
    """Whether each event below the ends was dealt with, or waits: for its next attempt, behind one
    that does, or because the group was made to stop."""
    if any(
        part.first < ends.get(TopicPartition(part.topic, part.partition), 0)
        for each in view.in_flight
        for part in each.ranges
    ):
        return False
    is_open = view.breaker.circuit(config.retry.breaker, now_ms) is Circuit.OPEN
    if view.blocked or is_open:
        return True
    return not view.due and all(
        head.frontier >= ends.get(head.partition, 0) or _waits(head, config.order)
        for head in view.heads
    )


def _waits(head: PartitionHead, order: Order) -> bool:
    """Whether the new events of a partition wait for earlier ones."""
    return order is not Order.NONE and head.is_held
