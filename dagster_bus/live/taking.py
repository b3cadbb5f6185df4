"""Taking work for a group: a delivery, the events in it, and which of them are wanted."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dagster_bus.core.clock import Clock
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Event, uuid7
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.groups import Group
from dagster_bus.core.planning import open_to
from dagster_bus.core.ranges import Place, covering, place_of, without
from dagster_bus.core.recovering import Worker as WorkerState
from dagster_bus.core.recovering import WorkerGone
from dagster_bus.core.reporting import Failed, Moment, Report
from dagster_bus.core.stepping import Step, Told, is_short, step_of
from dagster_bus.core.store import GroupView, PartitionHead, Store
from dagster_bus.core.topic import EventFilter
from dagster_bus.live import presence
from dagster_bus.live.lanes import lanes_by
from dagster_bus.live.outlook import Ends, Outlook
from dagster_bus.live.pace import LOOK_EVERY_S, next_look_s, until_s
from dagster_bus.live.shelf import Shelf


class Taking:
    """How one subscription comes to work."""

    def __init__(
        self, config: GroupConfig, store: Store, clock: Clock, worker: str, shelf: Shelf
    ) -> None:
        self.group = Group(config, store, clock)
        self._config = config
        self._store = store
        self._clock = clock
        self._worker = worker
        self._shelf = shelf
        self.outlook = Outlook(worker)

    def begin(self) -> None:
        """Stand where a new group is to begin, from now on."""
        self._reserving(1).reserve(presence.look, most=0)

    def take(self, most_events: int) -> Delivery | None:
        """Lease what is to be tried again, or else new events, so many at most; None if there is
        nothing to do now."""
        group = self._reserving(most_events)
        taken = group.take(self._worker, presence.look, is_gone=presence.is_gone)
        return taken[0] if taken else None

    def step(
        self, told: Sequence[Told], most_events: int, ends: Callable[[], Ends]
    ) -> tuple[Step, float] | None:
        """How to report, and take new events, in one change; and how long to wait before the next
        look. None if the group is in such a state that it takes more than that."""
        if self._config.retry.breaker is not None:
            return None
        now_ms = self._clock()
        view = self._view(now_ms, ends)
        if not is_short(self._config, view, now_ms) or any(
            self._is_to_take_back(each, now_ms) for each in view.in_flight
        ):
            self.outlook.forget()
            return None
        moment = Moment(now_ms, random.random, lambda: uuid7(now_ms))
        heads = self._own(view, now_ms)
        own = view if len(heads) == len(view.heads) else replace(view, heads=tuple(heads))
        step = step_of(self._config, own, told, moment, self._worker, self._shelf.read, most_events)
        held = [each.id for each in view.in_flight if each.worker == self._worker]
        age_s = (now_ms - self.outlook.seen_ms) / 1_000
        return step, max(self._next_look_s(view, now_ms, held) - age_s, 0.001)

    def _own(self, view: GroupView, now_ms: int) -> list[PartitionHead]:
        """The partitions whose new events this worker may take."""
        return open_to(
            self._worker,
            view.heads,
            sticky_ms=self._config.sticky_ms,
            now_ms=now_ms,
            is_gone=presence.is_gone,
        )

    def _next_look_s(self, view: GroupView, now_ms: int, own: Iterable[str]) -> float:
        """How long to sleep, unless woken: also no longer than the events of others' partitions may
        be left to them."""
        theirs = [
            head.frontier_ts + self._config.sticky_ms
            for head in view.heads
            if head.frontier_ts is not None and head.owner not in (None, self._worker)
        ]
        return min(next_look_s(view, now_ms, own), until_s(theirs, now_ms))

    def _view(self, now_ms: int, ends: Callable[[], Ends]) -> GroupView:
        """How the group stands, with what is to be tried again until the next look."""
        known = self.outlook.at(ends, now_ms, self._shelf.time_of)
        if known is not None:
            return known
        until_ms = now_ms + int(LOOK_EVERY_S * 1_000)
        name, topics = self._config.name, self._config.topics
        view = self._store.view(name, topics, now_ms=until_ms, due_limit=1)
        self.outlook.saw(view, now_ms)
        return view

    def _is_to_take_back(self, delivery: Delivery, now_ms: int) -> bool:
        if delivery.is_due(now_ms):
            return True
        return delivery.worker != self._worker and presence.look(delivery) is WorkerState.GONE

    def pause_s(self, own: Iterable[str]) -> float:
        """How long to wait before the next look, unless events come."""
        now_ms = self._clock()
        until_ms = now_ms + int(LOOK_EVERY_S * 1_000)
        name, topics = self._config.name, self._config.topics
        view = self._store.view(name, topics, now_ms=until_ms, due_limit=1)
        return self._next_look_s(view, now_ms, own)

    def _reserving(self, most_events: int) -> Group:
        """The group as it takes work. The work of a process that died is handed on at once, and
        whatever the policy says of errors: nobody knows that it was the event's fault."""
        at_once = replace(self._config.retry, base_delay_ms=0, retry_on=(), dead_letter_on=())
        config = replace(
            self._config, retry=at_once, max_events=min(most_events, self._config.max_events)
        )
        return Group(config, self._store, self._clock)


@dataclass(frozen=True, slots=True)
class Sifted:
    """The events of a delivery."""

    wanted: list[Event]
    filtered: list[Place]
    """Not wanted, or not there any more: compaction took them out."""
    expired: list[Place]


def sift(
    held: Delivery, events: Iterable[Event], filters: Iterable[EventFilter], now_ms: int
) -> Sifted:
    """Which events are handed to the handler."""
    asked = [each for each in filters if each]
    sifted = Sifted([], [], [])
    found = [*events]
    for event in found:
        if asked and not all(each.matches(event.attributes, event.key) for each in asked):
            sifted.filtered.append(place_of(event))
        elif event.ttl_s is not None and event.is_expired(now_ms):
            sifted.expired.append(place_of(event))
        else:
            sifted.wanted.append(event)
    if len(found) == held.size:
        return sifted
    for gap in without(held.ranges, covering(map(place_of, found))):
        sifted.filtered.extend(
            Place(gap.topic, gap.partition, offset) for offset in range(gap.first, gap.last + 1)
        )
    return sifted


_FRESH = 2
"""The version of a delivery that was handed back and taken, and never worked on."""


def is_suspicious(held: Delivery) -> bool:
    """Whether workers have died over a delivery as often as they may: something in it kills."""
    return held.exhausted and held.errors[-1].type == WorkerGone.__name__


def set_apart(held: Delivery, events: list[Event], order: Order) -> Report | None:
    """What to report of a suspicious delivery before its work is begun; None to give it up.

    Where order does not matter its first event is tried alone. If a worker dies over that too, it
    is that one. Where later events may not be done first, the first is given up, as it is the one
    that was being done."""
    if held.size == 1:
        return Report() if held.version <= _FRESH else None
    if not events:
        return Report()
    first, *rest = [place_of(event) for event in events]
    if order is Order.NONE:
        return Report(returned=without(held.ranges, covering([first])))
    lane_of = lanes_by(order)
    lane = lane_of(events[0])
    behind = [
        place
        for place, event in zip(rest, events[1:], strict=True)
        if lane is not None and lane_of(event) == lane
    ]
    error = WorkerGone("workers died over this event, or those next to it, again and again")
    return Report(refused=(Failed(covering([first]), error, covering(behind)),))
