"""The next step of a worker that keeps up, in one change: its last events are done, and it takes
the next. Pure, but for the reading of the events.

This is the short way of what `reporting` and `reserving` do in two steps. Whatever is not plain is
left to them: what failed, what is to be tried again, workers that are gone, new partitions, and
events that may not overtake others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dagster_bus.core import delivery as life
from dagster_bus.core import planning
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Event
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.ranges import Ranges, count, joined
from dagster_bus.core.reporting import Moment, Report
from dagster_bus.core.store import Change, GroupView, PartitionHead, Tally
from dagster_bus.core.topic import OffsetRange
from dagster_bus.core.window import Window
from dagster_bus.errors import LeaseLost


class Told(NamedTuple):
    """A delivery, and what its holder says of it."""

    held: Delivery
    report: Report
    """A plain one: all that it says is that events were dealt with."""

    @property
    def tally(self) -> Tally:
        report = self.report
        return Tally(
            processed=count(report.processed),
            filtered=count(report.filtered),
            expired=count(report.expired),
        )


class Page(NamedTuple):
    """The events of the first part of a range, up to an offset."""

    events: Sequence[Event]
    last: int
    most_bytes: int
    """They are of so many bytes or fewer."""


Read = Callable[[OffsetRange], Page]


@dataclass(frozen=True, slots=True)
class Step:
    """A change to be committed, and what it comes to."""

    change: Change | None
    """None if there is nothing to write."""
    left: tuple[Delivery, ...]
    """What is left of the deliveries that were reported on, in their order."""
    taken: Delivery | None
    events: list[Event]
    """Those of the delivery that is taken."""


def is_short(config: GroupConfig, view: GroupView, now_ms: int) -> bool:
    """Whether a group without a circuit breaker is in such a state that its workers may go the
    short way."""
    return not (
        view.blocked
        or any(each.is_due(now_ms) for each in view.due)
        or (config.start != "earliest" and any(head.is_new for head in view.heads))
        or (config.order is not Order.NONE and any(_waits(head) for head in view.heads))
    )


def step_of(
    config: GroupConfig,
    view: GroupView,
    told: Sequence[Told],
    moment: Moment,
    worker: str,
    read: Read,
    most_events: int,
) -> Step:
    """Report, and take the next events if there are any, so many at most. Raises LeaseLost, if a
    lease is over."""
    now = {each.id: each for each in view.in_flight}
    left = tuple(_reported(now, each, moment.now_ms) for each in told)
    ended = sum(not each.in_flight for each in left)
    taken, events = None, list[Event]()
    if len(view.in_flight) - ended < config.max_inflight:
        taken, events = _next_delivery(config, view.heads, moment, worker, read, most_events)
    if taken is None and not told:
        return Step(None, left, None, [])
    change = Change(
        group=config.name,
        deliveries=(*left, taken) if taken else left,
        frontiers=planning.frontiers_after(taken.ranges) if taken else {},
        taker=worker,
        expected_version=view.version if taken else None,
        done=sum((each.tally for each in told), Tally()),
        lasting=config.lasting,
    )
    return Step(change, left, taken, events)


def _waits(head: PartitionHead) -> bool:
    """Whether earlier events may keep back the new ones of a partition."""
    return head.is_held and head.waiting > 0


def _reported(now: Mapping[str, Delivery], told: Told, now_ms: int) -> Delivery:
    """The next state of a delivery."""
    current = now.get(told.held.id)
    if current is None:
        raise LeaseLost(f"delivery {told.held.id} is not under way any more")
    life.require_lease(current, token=told.held.token, now_ms=now_ms)
    report = told.report
    settled = joined([*report.processed, *report.filtered, *report.expired])
    if settled == current.ranges:
        return life.settle_all(current, now_ms=now_ms)
    rest, _ = life.split(current, settled, id=current.id, now_ms=now_ms)
    return life.settle_rest(rest, now_ms=now_ms)


def _next_delivery(
    config: GroupConfig,
    heads: Sequence[PartitionHead],
    moment: Moment,
    worker: str,
    read: Read,
    most_events: int,
) -> tuple[Delivery | None, list[Event]]:
    now_ms = moment.now_ms
    window = planning.next_window(heads, now_ms, config.windows)
    if window is None or planning.waits_for_more(
        heads,
        window,
        max_events=most_events,
        max_wait_ms=config.max_wait_ms,
        now_ms=now_ms,
    ):
        return None, []
    ranges, events = _next_events(heads, window, read, most_events, config.max_bytes)
    if not ranges:
        return None, []
    taken = life.open_leased(
        id=moment.new_id(),
        group=config.name,
        window=window.key,
        ranges=ranges,
        worker=worker,
        now_ms=now_ms,
        lease_ms=config.lease_ms,
    )
    return taken, events


def _next_events(
    heads: Sequence[PartitionHead],
    window: Window,
    read: Read,
    most_events: int,
    most_bytes: int | None,
) -> tuple[Ranges, list[Event]]:
    """The first events of a window: so many at most, of so many bytes, and at least one."""
    inside = [head for head in heads if planning.belongs(head, window)]
    ends = {head.partition: head.end for head in inside}
    room = float("inf") if most_bytes is None else most_bytes
    ranges: list[OffsetRange] = []
    events: list[Event] = []
    for span in planning.first_of(planning.next_spans(inside, window, ends), most_events):
        page = read(span)
        fitting = _fitting(page, window, room, at_least=0 if events else 1)
        last = page.last if fitting == len(page.events) else page.events[fitting].offset - 1
        events += page.events[:fitting]
        room -= page.most_bytes
        if last >= span.first:
            ranges.append(span if last == span.last else replace(span, last=last))
        if fitting < len(page.events) or room <= 0:
            break
    return tuple(ranges), events


def _fitting(page: Page, window: Window, room: float, at_least: int) -> int:
    """How many of the first events lie in a window and are of at most so many bytes."""
    events = page.events
    if page.most_bytes <= room and (not events or events[-1].ts < window.end_ms):
        return len(events)
    for number, event in enumerate(events):
        room -= event.size
        if event.ts >= window.end_ms or (room < 0 and number >= at_least):
            return number
    return len(events)
