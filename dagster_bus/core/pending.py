"""A group's events as a queue for people: what is to do, and what somebody has done by hand."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from dagster_bus.core import delivery as life
from dagster_bus.core.cutting import cut
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Event
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.ranges import Place, Ranges, count, covering, joined, within, without
from dagster_bus.core.reporting import Moment
from dagster_bus.core.store import Change, GroupView, Store, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import DeliveriesUnderWay, UnknownEvent


def pending(config: GroupConfig, store: Store, now_ms: int, limit: int) -> list[Event]:
    """What the group still has to do, most urgent first and then oldest first, of the oldest
    `limit` events. Those that it does not want, or whose time is over, are not among them; those
    that somebody works on are."""
    view = store.view(config.name, config.topics, now_ms=now_ms, due_limit=0)
    open_ones = store.open_deliveries(config.name)
    wanted = (
        event
        for event in _unsettled(config, store, view, open_ones)
        if not event.is_expired(now_ms)
        and (not config.filter or config.filter.matches(event.attributes, event.key))
    )
    return sorted(islice(wanted, limit), key=lambda event: (event.priority, event.ts, event.offset))


def acknowledge(
    config: GroupConfig, store: Store, moment: Moment, places: Iterable[Place] | None
) -> int:
    """Settle events as processed, or all that are pending; returns how many there were. The others
    stay as they are. Raises, and changes nothing, if one of them is not pending or somebody works
    on it; StaleState if the group has moved meanwhile."""
    view = store.view(config.name, config.topics, now_ms=moment.now_ms, due_limit=0)
    open_ones = store.open_deliveries(config.name)
    beyond = untaken(view)
    if places is None:
        chosen = [each for each in open_ones if not each.in_flight]
        done: Ranges = joined([*beyond, *(part for each in chosen for part in each.ranges)])
    else:
        done = covering(places)
        chosen = [each for each in open_ones if within(each.ranges, done)]
    _require_idle(each for each in chosen if each.in_flight)
    changed = [_less(each, done, moment.now_ms) for each in chosen]
    in_open = sum(before.size - after.size for before, after in zip(chosen, changed, strict=True))
    fresh = within(beyond, done)
    if places is not None and in_open + count(fresh) != count(done):
        raise UnknownEvent(
            "not all of these events wait for the group: they are settled already, or not there"
        )
    taken = [part for part in (_up_to(part, fresh) for part in beyond) if part is not None]
    spans = {TopicPartition(part.topic, part.partition): part for part in taken}
    left = _left(config, store, moment, spans, fresh)
    store.commit(
        Change(
            group=config.name,
            deliveries=(*changed, *left),
            frontiers={at: part.last + 1 for at, part in spans.items()},
            expected_version=view.version if spans else None,
            done=Tally(processed=in_open + count(fresh)),
        )
    )
    return in_open + count(fresh)


def _unsettled(
    config: GroupConfig, store: Store, view: GroupView, open_ones: Sequence[Delivery]
) -> Iterator[Event]:
    for each in open_ones:
        if each.redriven:
            yield from store.redriven(config.name, each.ranges)
        else:
            for part in each.ranges:
                yield from store.iterate(part)
    for part in untaken(view):
        yield from store.iterate(part)


def untaken(view: GroupView) -> Ranges:
    """What the group has never reserved."""
    return tuple(
        OffsetRange(*head.partition, head.frontier, head.end - 1)
        for head in view.heads
        if head.waiting > 0
    )


def _require_idle(under_way: Iterable[Delivery]) -> None:
    for each in under_way:
        raise DeliveriesUnderWay(
            f"{each.worker or 'a worker that is being started'} works on some of these events; "
            "wait until that is done"
        )


def _less(delivery: Delivery, done: Ranges, now_ms: int) -> Delivery:
    left = without(delivery.ranges, done)
    return life.settle_rest(replace(delivery, ranges=left), now_ms=now_ms)


def _up_to(part: OffsetRange, fresh: Ranges) -> OffsetRange | None:
    """A partition's events up to the last of those that were done."""
    inside = within((part,), fresh)
    return replace(part, last=inside[-1].last) if inside else None


def _left(
    config: GroupConfig,
    store: Store,
    moment: Moment,
    spans: dict[TopicPartition, OffsetRange],
    fresh: Ranges,
) -> list[Delivery]:
    """Deliveries that wait, of what was passed over."""
    if count(spans.values()) == count(fresh):
        return []
    return [
        Delivery(
            id=moment.new_id(),
            group=config.name,
            window=window.key,
            ranges=rest,
            state=State.WAITING,
            due_ms=moment.now_ms,
            created_ms=moment.now_ms,
        )
        for window, ranges in cut(store, spans, config.max_events, config.windows)
        if (rest := without(ranges, fresh))
    ]
