"""A group at work: reserve, lease, renew, report, settle and fail, by the rules of `delivery`.

Each step reads the state, decides with pure functions, and commits; if somebody else was faster the
store says so and the step is decided anew.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from dagster_bus.core import delivery as life
from dagster_bus.core import pending, recomputing, seeking
from dagster_bus.core.breaker import Breaker, Circuit
from dagster_bus.core.clock import Clock
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Batch, Event, Message, uuid7
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.position import Start
from dagster_bus.core.ranges import Place, Ranges
from dagster_bus.core.recomputing import IsCommitted, Past
from dagster_bus.core.recovering import IsGone, Look, nobody, nothing_known
from dagster_bus.core.reporting import (
    Failed,
    Moment,
    Report,
    all_of,
    change_of,
    change_of_giving_up,
)
from dagster_bus.core.reserving import TRIES, Reserving
from dagster_bus.core.store import Change, GroupProgress, Listener, Store, Tally
from dagster_bus.core.topic import TopicPartition
from dagster_bus.core.window import Window
from dagster_bus.errors import (
    DeliveryError,
    LeaseLost,
    ReservationLost,
    StaleState,
    UnknownDelivery,
    UsageError,
)

T = TypeVar("T")

Prepare = Callable[[str, Sequence[Message]], Batch]
"""Checks messages against a topic's rules, and makes them ready to be appended."""


class Group:
    """One group on one store."""

    def __init__(
        self,
        config: GroupConfig,
        store: Store,
        clock: Clock,
        dice: Callable[[], float] = random.random,
        prepare: Prepare | None = None,
    ) -> None:
        self.config = config
        self._store = store
        self._clock = clock
        self._dice = dice
        self._prepare = prepare

    def reserve(self, look: Look = nothing_known, most: int | None = None) -> list[Delivery]:
        """Reserve all that may run now, or at most so many: first what is to be tried again, then
        new events.

        `look` tells what became of a delivery's worker. The deliveries returned are to be started;
        those that are never leased come back after their launch time-out."""
        return Reserving(self.config, self._store, self._moment(), look).reserve_all(most)

    def take(
        self,
        worker: str,
        look: Look = nothing_known,
        most: int = 1,
        is_gone: IsGone = nobody,
    ) -> list[Delivery]:
        """Reserve and lease in one step, for a worker that is there already. `is_gone` tells of
        those whom partitions stay with."""
        moment = self._moment()
        return Reserving(self.config, self._store, moment, look, worker, is_gone).reserve_all(most)

    def lease(self, id: str, *, reservation: int, worker: str) -> Delivery:
        """Begin the work of a reservation. Raises ReservationLost if it no longer counts."""
        return self._step(
            id,
            lambda current, now_ms: life.lease(
                current,
                reservation=reservation,
                worker=worker,
                now_ms=now_ms,
                lease_ms=self.config.lease_ms,
            ),
            gone=ReservationLost,
        )

    def renew(self, held: Delivery) -> Delivery:
        """A heartbeat. Raises LeaseLost if the lease is over."""
        return self._beat(held, life.renew)

    def keep(self, held: Delivery) -> Delivery:
        """A heartbeat for a worker that does not speak for itself, by who has seen that it is still
        at work, or how it ended. Raises LeaseLost if its work was handed on."""
        return self._beat(held, life.keep)

    def _beat(self, held: Delivery, beat: Callable[..., Delivery]) -> Delivery:
        lease_ms = self.config.lease_ms
        return self._step(
            held.id,
            lambda current, now_ms: beat(
                current, token=held.token, now_ms=now_ms, lease_ms=lease_ms
            ),
        )

    def delivery(self, id: str) -> Delivery:
        """One of the group's deliveries, as it is now. Raises UnknownDelivery."""
        return self._store.delivery(id)

    def most_urgent(self, delivery: Delivery) -> int | None:
        """The priority of a delivery's most urgent event."""
        return self._store.most_urgent(delivery.ranges)

    def listen(self) -> Listener:
        """Begin to listen for new events, of whatever topic."""
        return self._store.listen()

    def unwanted(self, held: Delivery) -> int:
        """How many of a delivery's events the group does not want, or are not there any more."""
        wanted = self.config.filter
        if not wanted or held.redriven:
            return 0
        return held.size - sum(
            wanted.matches(event.attributes, event.key) for event in self.events(held)
        )

    def events(self, held: Delivery) -> Iterator[Event]:
        """The events of a delivery, as they are to be delivered, partition by partition in order.
        What the group does not want is among them."""
        if held.redriven:
            yield from self._store.redriven(self.config.name, held.ranges)
            return
        for part in held.ranges:
            yield from self._store.iterate(part)

    def report(self, held: Delivery, report: Report) -> Delivery:
        """Say how some of a delivery's events ended; returns the delivery with what is left of it,
        which is done if nothing is. Raises LeaseLost, and changes nothing, if the lease is over."""

        return self._tell(held, lambda _: report)

    def prepare(self, topic: str, messages: Sequence[Message]) -> Batch:
        """What is to be published when a delivery is settled. Raises UsageError if the topic would
        refuse it; nothing is appended yet."""
        if self._prepare is None:
            raise UsageError(f"group {self.config.name} was opened without the topics it writes to")
        return self._prepare(topic, messages)

    def settle(
        self,
        held: Delivery,
        *,
        filtered: int = 0,
        expired: int = 0,
        publishing: Sequence[Batch] = (),
    ) -> Delivery:
        """The work is done: all events left in the delivery were processed, but for so many that
        were filtered out or had expired. What came of it is published in the same step: if the
        lease is over, neither happens."""

        left_out = Tally(filtered=filtered, expired=expired)
        return self._tell(
            held,
            lambda current: Report(processed=current.ranges, left_out=left_out),
            tuple(publishing),
        )

    def fail(self, held: Delivery, error: BaseException) -> Delivery:
        """The work failed: it waits for its next attempt, or its events go to the dead letters."""
        current = self._find(held.id)
        return self.report(held, all_of(current, error))

    def hand_back(self, held: Delivery, *, wait_ms: int = 0, looked: bool = False) -> Delivery:
        """The worker was told to stop, or could not begin: somebody else does the rest, after a
        wait if there is one. No attempt is counted. `looked`: it has looked for bad events, and
        that did not help."""

        def step(current: Delivery, now_ms: int) -> Delivery:
            return life.hand_back(
                current, token=held.token, now_ms=now_ms, wait_ms=wait_ms, looked=looked
            )

        return self._step(held.id, step)

    def is_exhausted(self, held: Delivery) -> bool:
        """Whether the work may not be tried any more. The holder is to look whether a vanished
        worker has done it: if so to settle, and else to give up."""
        return held.exhausted

    def give_up(self, held: Delivery) -> Delivery:
        """The work was not done, and no attempt is left: its events go to the dead letters, or the
        group stops, if it is to block then."""
        return self._held(
            held, lambda current, moment: change_of_giving_up(self.config, current, moment)
        )

    def resume(self) -> int:
        """Let a group go on that has stopped because of a batch that failed for good: the batch
        starts afresh. Returns how many deliveries were blocked."""

        def step() -> int:
            now_ms = self._clock()
            found = self.open_deliveries(State.BLOCKED)
            resumed = tuple(life.resume(each, now_ms=now_ms) for each in found)
            if resumed:
                self._store.commit(Change(group=self.config.name, deliveries=resumed))
            return len(resumed)

        return self._until_committed(step)

    def seek(
        self,
        start: Start,
        partitions: list[TopicPartition] | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> list[seeking.Move]:
        """Send the group to a place: in all partitions of its topics, or in some.

        Refused while deliveries of these partitions are under way, unless forced: then their
        workers are refused. What waited for another attempt there waits no longer."""
        return self._until_committed(
            lambda: seeking.seek(
                self.config,
                self._store,
                self._moment(),
                start,
                partitions,
                force=force,
                dry_run=dry_run,
            )
        )

    def open_deliveries(self, state: State | None = None) -> list[Delivery]:
        """Those that are not done, oldest first; of one state, if one is asked for."""
        return self._store.open_deliveries(self.config.name, state)

    def deliveries(self, ids: Sequence[str]) -> list[Delivery]:
        """Those of some deliveries that the store knows."""
        return self._store.deliveries(ids)

    def untaken(self) -> Ranges:
        """What the group has never reserved."""
        view = self._store.view(
            self.config.name, self.config.topics, now_ms=self._clock(), due_limit=0
        )
        return pending.untaken(view)

    def pending(self, limit: int = 10_000) -> list[Event]:
        """What the group still has to do, most urgent first, of the oldest `limit` events."""
        return pending.pending(self.config, self._store, self._clock(), limit)

    def acknowledge(self, places: list[Place] | None = None) -> int:
        """Settle events by hand, as processed: some, or all that nobody works on."""
        return self._until_committed(
            lambda: pending.acknowledge(self.config, self._store, self._moment(), places)
        )

    def past(self, window: Window, is_committed: IsCommitted) -> Past:
        """What the group has behind it in a window. Raises EventsGone if the log may lack some."""
        return recomputing.past_of(self.config, self._store, window, self._clock(), is_committed)

    def refuse(self, past: Past, refused: list[Failed], window: Window, worker: str) -> int:
        """Make dead letters of events that the group has behind it, once, whoever else does so;
        returns how many."""

        def step() -> int:
            moment = self._moment()
            view = self._store.view(
                self.config.name, self.config.topics, now_ms=moment.now_ms, due_limit=0
            )
            left = recomputing.still_alive(self.config, self._store, refused)
            change = recomputing.refusal(self.config, past, left, window, moment, worker)
            if change.deliveries:
                self._store.commit(replace(change, expected_version=view.version))
            return sum(each.size for each in change.deliveries)

        return self._until_committed(step)

    def circuit(self) -> tuple[Circuit, Breaker]:
        """Whether the group pauses because its work failed again and again, and until when."""
        breaker = self._store.breaker(self.config.name)
        return breaker.circuit(self.config.retry.breaker, self._clock()), breaker

    def progress(self) -> GroupProgress:
        found = self._store.progress(self.config.name, self.config.topics)
        if self.config.topics:
            return found
        inside = found.reserved + found.running + found.waiting + found.blocked
        return replace(found, published=found.tally.settled + inside)  # a replay has no more

    def _tell(
        self,
        held: Delivery,
        say: Callable[[Delivery], Report],
        publishing: tuple[Batch, ...] = (),
    ) -> Delivery:
        """Commit what a holder says of its delivery as it is now, and what came of it."""

        def decide(current: Delivery, moment: Moment) -> Change:
            breaker = self._store.breaker(self.config.name) if self.config.retry.breaker else None
            change = change_of(self.config, current, say(current), moment, breaker)
            return replace(change, told=publishing, told_ms=moment.now_ms)

        return self._held(held, decide)

    def _held(self, held: Delivery, decide: Callable[[Delivery, Moment], Change]) -> Delivery:
        """Write what follows for a delivery, if the one who speaks still holds its lease."""

        def follow(current: Delivery, moment: Moment) -> Change:
            life.require_lease(current, token=held.token, now_ms=moment.now_ms)
            return decide(current, moment)

        return self._write(held.id, follow)

    def _step(
        self,
        id: str,
        follow: Callable[[Delivery, int], Delivery],
        gone: type[DeliveryError] = LeaseLost,
    ) -> Delivery:
        """Write the next state of one delivery."""
        name, lasting = self.config.name, self.config.lasting
        return self._write(
            id,
            lambda current, moment: Change(
                group=name, deliveries=(follow(current, moment.now_ms),), lasting=lasting
            ),
            gone,
        )

    def _write(
        self,
        id: str,
        follow: Callable[[Delivery, Moment], Change],
        gone: type[DeliveryError] = LeaseLost,
    ) -> Delivery:
        """Write what follows from the present state of a delivery; returns its next one."""

        def step() -> Delivery:
            moment = self._moment()
            change = follow(self._find(id, gone), moment)
            self._store.commit(change)
            return change.deliveries[0]

        return self._until_committed(step)

    def _find(self, id: str, gone: type[DeliveryError] = LeaseLost) -> Delivery:
        try:
            return self._store.delivery(id)
        except UnknownDelivery:
            if self.config.lasting:
                raise
            raise gone(f"delivery {id} is done: its work was handed on") from None

    def _moment(self) -> Moment:
        now_ms = self._clock()
        return Moment(now_ms, self._dice, lambda: uuid7(now_ms))

    def _until_committed(self, step: Callable[[], T]) -> T:
        for _ in range(TRIES - 1):
            try:
                return step()
            except StaleState:
                continue
        return step()
