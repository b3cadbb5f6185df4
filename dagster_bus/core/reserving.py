"""Reserving: what a group may begin now, and what has to be taken back first.

Each step reads the state, decides with pure functions, and commits; if somebody else was faster the
store says so, and the step is decided anew on what is there now.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from dagster_bus.core import delivery as life
from dagster_bus.core import planning
from dagster_bus.core.breaker import PROBE_EVENTS, Circuit
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.position import AtOffset, AtTime
from dagster_bus.core.ranges import Ranges, count, covering, within, without
from dagster_bus.core.recovering import IsGone, Look, Recovering, nobody
from dagster_bus.core.reporting import Moment
from dagster_bus.core.store import Change, GroupView, PartitionHead, Store
from dagster_bus.core.topic import LAST_OFFSET, OffsetRange
from dagster_bus.core.window import Window
from dagster_bus.errors import StaleState

TRIES = 20
"""How often a step is decided anew before giving up. Each loss means that somebody else got on."""

WRITTEN_AT_ONCE = 1_000
"""Deliveries that are written in one step: few enough for any store, however many there are."""


class Reserving:
    """One round of reserving for a group, at one moment."""

    def __init__(
        self,
        config: GroupConfig,
        store: Store,
        moment: Moment,
        look: Look,
        worker: str | None = None,
        is_gone: IsGone = nobody,
    ) -> None:
        self._config = config
        self._store = store
        self._moment = moment
        self._now_ms = moment.now_ms
        self._recovering = Recovering(config, moment, look)
        self._worker = worker
        """Who takes what is reserved at once, if nobody has to be started for it."""
        self._is_gone = is_gone
        self._room = 0
        """How many more deliveries are asked for."""

    def reserve_all(self, most: int | None = None) -> list[Delivery]:
        """Reserve all that may run now: first what is to be tried again, then new events."""
        reserved: list[Delivery] = []
        self._room = self._config.max_inflight if most is None else most
        view = self._begin()
        for _ in range(self._config.max_inflight + TRIES):
            if self._room <= 0:
                break
            try:
                more = self._reserve_more(view)
            except StaleState:
                pass  # somebody else was faster: look again
            else:
                if more is None:
                    break
                reserved += more
                self._room -= len(more)
            if self._room > 0:
                view = self._view()
        return reserved

    def _begin(self) -> GroupView:
        """The view to decide on, once vanished workers are taken from and new partitions begun."""
        for _ in range(TRIES - 1):
            try:
                return self._prepared()
            except StaleState:
                continue
        return self._prepared()

    def _prepared(self) -> GroupView:
        view = self._view()
        recovered = filter(None, map(self._recovering.next_state, view.in_flight))
        beginning = self._beginning(view)
        has_changed = beginning is not None
        while some := tuple(islice(recovered, WRITTEN_AT_ONCE)):
            self._commit(*some)
            has_changed = True
        if beginning:
            self._store.commit(beginning)
        return self._view() if has_changed else view

    def _beginning(self, view: GroupView) -> Change | None:
        """Where to begin in partitions that are new to the group, if not with all there is."""
        start = self._config.start
        heads = {head.partition: head for head in view.heads if head.is_new}
        if start == "earliest" or not heads:
            return None
        if isinstance(start, AtTime):
            places = self._store.offsets_at(list(heads), start.ts_ms)
        else:
            places = {
                at: start.offset if isinstance(start, AtOffset) else head.end
                for at, head in heads.items()
            }
        frontiers = {at: max(places[at], head.frontier) for at, head in heads.items()}
        return Change(
            group=self._config.name,
            frontiers=frontiers,
            shifts={at: frontiers[at] - head.frontier for at, head in heads.items()},
            expected_version=view.version,
        )

    def _view(self) -> GroupView:
        return self._store.view(
            self._config.name,
            self._config.topics,
            now_ms=self._now_ms,
            due_limit=min(max(self._room, 0), self._config.max_inflight, WRITTEN_AT_ONCE),
        )

    def _reserve_more(self, view: GroupView) -> list[Delivery] | None:
        """Some more deliveries, if there may be any; none, but a step ahead; or None at the end."""
        circuit = view.breaker.circuit(self._config.retry.breaker, self._now_ms)
        probing = circuit is Circuit.HALF_OPEN
        room = (1 if probing else self._config.max_inflight) - len(view.in_flight)
        room = min(room, self._room, WRITTEN_AT_ONCE)
        if circuit is Circuit.OPEN or view.blocked or room <= 0:
            return None
        if view.due:
            taken = [self._taken(self._again(each)) for each in view.due[:room]]
            self._commit(*taken)
            return taken
        most_events = self._config.max_events
        most_events = min(most_events, PROBE_EVENTS) if probing else most_events
        return self._reserve_new(view, room, most_events)

    def _reserve_new(self, view: GroupView, room: int, most_events: int) -> list[Delivery] | None:
        """Deliveries of the oldest events never reserved, of one window."""
        heads = planning.free_heads(self._own(view.heads), view.in_flight, self._config.order)
        window = planning.next_window(heads, self._now_ms, self._config.windows)
        if window is None or planning.waits_for_more(
            heads,
            window,
            max_events=most_events,
            max_wait_ms=self._config.max_wait_ms,
            now_ms=self._now_ms,
        ):
            return None
        if self._config.order is Order.NONE:
            batches = self._next_batches(heads, window, room, most_events)
            joining: tuple[Delivery, ...] = ()
            taken = tuple(part for batch in batches for part in batch)
        else:  # a partition is worked on by one delivery at a time
            (batch,) = self._next_batches(heads, window, 1, most_events) or [()]
            taken, joining = self._set_aside(batch, heads, window)
            batches = [without(taken, {part for each in joining for part in each.ranges})]
        if not taken:
            return None
        opened = [self._taken(self._opened(window, batch)) for batch in batches if batch]
        self._store.commit(
            Change(
                group=self._config.name,
                deliveries=(*joining, *opened),
                frontiers=planning.frontiers_after(taken),
                taker=self._worker,
                expected_version=view.version,
                lasting=self._config.lasting,
            )
        )
        return opened

    def _own(self, heads: Sequence[PartitionHead]) -> Sequence[PartitionHead]:
        """The partitions that are to be taken from here, if they stay with their workers."""
        if self._worker is None or not self._config.sticky_ms:
            return heads
        return planning.open_to(
            self._worker,
            heads,
            sticky_ms=self._config.sticky_ms,
            now_ms=self._now_ms,
            is_gone=self._is_gone,
        )

    def _next_batches(
        self, heads: Sequence[PartitionHead], window: Window, room: int, most_events: int
    ) -> list[Ranges]:
        """The events of a window, in batches. If batches are to wait until they are full, one that
        is not is left for the next step, which sees how long its oldest event has waited."""
        inside = [head.partition for head in heads if planning.belongs(head, window)]
        ends = self._store.offsets_at(inside, window.end_ms)
        left = planning.next_spans(heads, window, ends)
        batches: list[Ranges] = []
        while left and len(batches) < room:
            if batches and self._config.max_wait_ms and count(left) < most_events:
                break
            batches.append(self._within_bytes(planning.first_of(left, most_events)))
            left = planning.after(left, batches[-1])
        return batches

    def _within_bytes(self, ranges: Ranges) -> Ranges:
        """The first of the events, as many as are of so many bytes together, and at least one."""
        left = self._config.max_bytes
        if left is None:
            return ranges
        fitting: list[OffsetRange] = []
        for part in ranges:
            last, size = self._store.fitting(part, left)
            if last < part.first and not fitting:
                return (replace(part, last=part.first),)
            if last >= part.first:
                fitting.append(replace(part, last=last))
                left -= size
        return tuple(fitting)

    def _set_aside(
        self, ranges: Ranges, heads: Iterable[PartitionHead], window: Window
    ) -> tuple[Ranges, tuple[Delivery, ...]]:
        """What of some ranges can be taken now, and the waiting deliveries that some of it is to
        join, because an earlier event of the same key is there. From the first event on whose key
        is under way just now, or waits in a delivery that takes no more, a partition's events are
        left for later.
        """
        held_back = {head.partition for head in heads if head.is_held}
        behind = [part for part in ranges if (part.topic, part.partition) in held_back]
        if self._config.order is not Order.KEY or not behind:
            return ranges, ()
        holders = self._store.holders(self._config.name, behind)
        waiting = {
            each.id: each
            for each in self._store.deliveries(list({id for _, id in holders}))
            if each.state is State.WAITING and self._fits(each, window)
        }
        left = [OffsetRange(*place, LAST_OFFSET) for place, id in holders if id not in waiting]
        taken = without(ranges, left)
        joining = []
        for id, delivery in waiting.items():
            own = within(covering(place for place, holder in holders if holder == id), taken)
            if own:
                joining.append(life.join(delivery, own))
        return taken, tuple(joining)

    def _fits(self, waiting: Delivery, window: Window) -> bool:
        """Whether events of a window may join a delivery. A table has to know its windows, and must
        not take them for done, if it turns out that it has the delivery already."""
        if not self._config.lasting:
            return True
        return waiting.window == window.key and not waiting.doubtful

    def _commit(self, *deliveries: Delivery) -> None:
        lasting = self._config.lasting
        self._store.commit(Change(group=self._config.name, deliveries=deliveries, lasting=lasting))

    def _taken(self, reserved: Delivery) -> Delivery:
        """A reservation as it is written: with its lease, if its worker is the one who asks."""
        if self._worker is None:
            return reserved
        leased = life.lease(
            reserved,
            reservation=reserved.reservation,
            worker=self._worker,
            now_ms=self._now_ms,
            lease_ms=self._config.lease_ms,
        )
        return replace(leased, version=reserved.version)

    def _again(self, waiting: Delivery) -> Delivery:
        timeout_ms = self._config.launch_timeout_ms
        return life.reserve_again(waiting, now_ms=self._now_ms, launch_timeout_ms=timeout_ms)

    def _opened(self, window: Window, ranges: Ranges) -> Delivery:
        return life.open_delivery(
            id=self._moment.new_id(),
            group=self._config.name,
            window=window.key,
            ranges=ranges,
            now_ms=self._now_ms,
            launch_timeout_ms=self._config.launch_timeout_ms,
        )
