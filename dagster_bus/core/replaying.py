"""Named replays: a frozen set of events, gone through again beside the live group.

What a replay holds is settled when it is made, as deliveries of a group of its own, `GROUP~NAME`:
so what is published later does not join it, the live group's cursors never move because of it, and
retention leaves its events alone until they are done.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from dagster_bus.core.cutting import cut
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.position import Start, first_offsets
from dagster_bus.core.ranges import Ranges
from dagster_bus.core.reporting import Moment
from dagster_bus.core.store import Change, Store
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import Window
from dagster_bus.errors import ReplayExists, StaleState, UnknownTopic, UsageError

SEPARATOR = "~"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def replay_config(config: GroupConfig, name: str) -> GroupConfig:
    """The rules of a replay: those of its group, over its own events only. Where order counts, one
    delivery after the other is done."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name for a replay: use a-z, 0-9 and '-'")
    in_order = config.order is not Order.NONE
    return replace(
        config,
        name=f"{config.name}{SEPARATOR}{name}",
        topics=(),
        order=Order.NONE,
        max_inflight=1 if in_order else config.max_inflight,
    )


def replays_of(group: str, names: Iterable[str]) -> list[str]:
    """The names of a group's replays, among those of all groups of a store."""
    prefix = f"{group}{SEPARATOR}"
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def open_replay(
    config: GroupConfig,
    store: Store,
    moment: Moment,
    name: str,
    *,
    start: Start,
    end: Start,
    partitions: Iterable[TopicPartition] | None,
) -> GroupConfig:
    """Freeze what lies between two places now. Raises ReplayExists if the name was given before,
    and OffsetTrimmed if what is asked for is no longer there."""
    own = replay_config(config, name)
    bounds = store.bounds(config.topics)
    wanted = list(bounds) if partitions is None else list(partitions)
    for at in wanted:
        if at not in bounds:
            raise UnknownTopic(f"group {config.name} does not read {at.topic}/{at.partition}")
    chosen = {at: bounds[at] for at in wanted}
    firsts = first_offsets(start, store, chosen)
    ends = first_offsets(end, store, chosen)
    spans = {
        at: OffsetRange(*at, firsts[at], min(ends[at], bounds[at].end) - 1)
        for at in wanted
        if firsts[at] < min(ends[at], bounds[at].end)
    }
    if not spans:
        raise UsageError("there is no event between these places: nothing would be replayed")
    batches = cut(store, spans, config.max_events, config.windows)
    deliveries = tuple(
        _delivery(own, moment, window, ranges, number)
        for number, (window, ranges) in enumerate(batches)
    )
    try:
        store.commit(Change(group=own.name, deliveries=deliveries, expected_version=0))
    except StaleState:
        if own.name not in store.groups():
            raise
        raise ReplayExists(
            f"group {config.name} has a replay {name!r} already; choose another name"
        ) from None
    return own


def _delivery(
    config: GroupConfig, moment: Moment, window: Window, ranges: Ranges, number: int
) -> Delivery:
    """A delivery that waits for its first attempt. Those of earlier events are due earlier."""
    return Delivery(
        id=moment.new_id(),
        group=config.name,
        window=window.key,
        ranges=ranges,
        state=State.WAITING,
        due_ms=moment.now_ms - (1 << 40) + number,
        created_ms=moment.now_ms,
    )
