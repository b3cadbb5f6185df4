"""A group at work: reserve, lease, renew, settle and fail, by the rules of `delivery` and `retry`.

Each step reads the state, decides with pure functions, and commits; if somebody else was faster the
store says so and the step is decided anew.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from dagster_bus.core import delivery as life
from dagster_bus.core import planning
from dagster_bus.core.clock import Clock
from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.event import uuid7
from dagster_bus.core.failure import describe, fingerprint
from dagster_bus.core.retry import RetryAfter, RetryPolicy, decide
from dagster_bus.core.store import Burial, Change, GroupProgress, GroupView, Store, Tally
from dagster_bus.core.topic import EventFilter, TopicPartition
from dagster_bus.errors import StaleState

TRIES = 20
"""How often a step is decided anew before giving up. Each loss means that somebody else got on."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group's rules, as declared."""

    name: str
    topics: tuple[str, ...]
    filter: EventFilter = field(default_factory=EventFilter)
    max_events: int = 50_000
    max_inflight: int = 2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    launch_timeout_ms: int = 120_000
    lease_ms: int = 60_000


class Worker(Enum):
    """What is known of the worker that a delivery was handed to."""

    UNKNOWN = "unknown"
    COMING = "coming"
    GONE = "gone"


class WorkerGone(Exception):
    """The worker ended without settling its delivery."""


def nothing_known(_: Delivery) -> Worker:
    return Worker.UNKNOWN


class Group:
    """One group on one store."""

    def __init__(
        self,
        config: GroupConfig,
        store: Store,
        clock: Clock,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self._store = store
        self._clock = clock
        self._dice = dice

    def reserve(self, look: Callable[[Delivery], Worker] = nothing_known) -> list[Delivery]:
        """Reserve all that may run now: first what is to be tried again, then new events.

        `look` tells what became of a delivery's worker. The deliveries returned are to be started;
        those that are never leased come back after their launch time-out."""
        now_ms = self._clock()
        reserved: list[Delivery] = []
        view = self._until_committed(lambda: self._recover(look, now_ms))
        for _ in range(self.config.max_inflight + TRIES):
            try:
                one = self._reserve_one(view, now_ms)
            except StaleState:
                pass  # somebody else was faster: look again
            else:
                if one is None:
                    break
                reserved.append(one)
            view = self._view(now_ms)
        return reserved

    def lease(self, id: str, *, reservation: int, worker: str) -> Delivery:
        """Begin the work of a reservation. Raises ReservationLost if it no longer counts."""

        def step() -> Delivery:
            leased = life.lease(
                self._store.delivery(id),
                reservation=reservation,
                worker=worker,
                now_ms=self._clock(),
                lease_ms=self.config.lease_ms,
            )
            return self._put(leased)

        return self._until_committed(step)

    def renew(self, held: Delivery) -> Delivery:
        """A heartbeat. Raises LeaseLost if the lease is over."""

        def step() -> Delivery:
            renewed = life.renew(
                self._store.delivery(held.id),
                token=held.token,
                now_ms=self._clock(),
                lease_ms=self.config.lease_ms,
            )
            return self._put(renewed)

        return self._until_committed(step)

    def settle(self, held: Delivery, *, filtered: int = 0) -> Delivery:
        """The work is done: the delivery's events were processed, but for those filtered out."""

        def step() -> Delivery:
            settled = life.settle(
                self._store.delivery(held.id), token=held.token, now_ms=self._clock()
            )
            tally = Tally(processed=settled.size - filtered, filtered=filtered)
            self._store.commit(replace(self._change(settled), done=tally))
            return settled

        return self._until_committed(step)

    def fail(self, held: Delivery, error: BaseException) -> Delivery:
        """The work failed: it waits for its next attempt, or ends in the dead letters."""

        def step() -> Delivery:
            current = self._store.delivery(held.id)
            now_ms = self._clock()
            cause = describe(error, attempt=current.attempt, worker=current.worker, at_ms=now_ms)
            failed = life.fail(
                current,
                token=held.token,
                now_ms=now_ms,
                error=cause,
                decision=decide(self.config.retry, current.attempt, self._dice()),
            )
            return self._put(failed)

        return self._until_committed(step)

    def hand_back(self, held: Delivery) -> Delivery:
        """The worker is told to stop: the work is for another one, and no attempt is counted."""

        def step() -> Delivery:
            current = self._store.delivery(held.id)
            return self._put(life.hand_back(current, token=held.token, now_ms=self._clock()))

        return self._until_committed(step)

    def is_exhausted(self, held: Delivery) -> bool:
        """Whether the work may not be tried any more. The holder is to look whether a vanished
        worker has done it: if so to settle, and else to give up."""
        return held.attempt > self.config.retry.max_attempts

    def give_up(self, held: Delivery) -> Delivery:
        """The work was not done, and no attempt is left: its events go to the dead letters."""

        def step() -> Delivery:
            current = self._store.delivery(held.id)
            return self._put(life.give_up(current, token=held.token, now_ms=self._clock()))

        return self._until_committed(step)

    def progress(self) -> GroupProgress:
        return self._store.progress(self.config.name, self.config.topics)

    def _reserve_one(self, view: GroupView, now_ms: int) -> Delivery | None:
        if len(view.in_flight) >= self.config.max_inflight:
            return None
        if view.due:
            timeout_ms = self.config.launch_timeout_ms
            return self._put(
                life.reserve_again(view.due[0], now_ms=now_ms, launch_timeout_ms=timeout_ms)
            )
        return self._reserve_new(view, now_ms)

    def _view(self, now_ms: int) -> GroupView:
        return self._store.view(self.config.name, self.config.topics, now_ms=now_ms, due_limit=1)

    def _recover(self, look: Callable[[Delivery], Worker], now_ms: int) -> GroupView:
        """Move on every delivery in flight that its worker has left, and view what is now."""
        view = self._view(now_ms)
        states = (self._recovered(delivery, look, now_ms) for delivery in view.in_flight)
        recovered = [state for state in states if state is not None]
        if not recovered:
            return view
        self._store.commit(self._change(*recovered))
        return self._view(now_ms)

    def _recovered(
        self, delivery: Delivery, look: Callable[[Delivery], Worker], now_ms: int
    ) -> Delivery | None:
        """The next state of a delivery in flight whose time is up or whose worker is gone."""
        if delivery.state is State.RESERVED:
            if not delivery.is_due(now_ms):
                return None
            if look(delivery) is Worker.COMING:
                return life.extend_reservation(
                    delivery, now_ms=now_ms, launch_timeout_ms=self.config.launch_timeout_ms
                )
            return life.release_reservation(delivery, now_ms=now_ms)
        expired = delivery.is_due(now_ms)
        if not expired and look(delivery) is not Worker.GONE:
            return None
        if self.is_exhausted(delivery):  # this worker was only to look; another one will
            delay_ms = self.config.retry.max_delay_ms
            return life.take_back(delivery, now_ms=now_ms, error=None, delay_ms=delay_ms)
        cause = WorkerGone(
            f"the lease ran out after {self.config.lease_ms} ms without a heartbeat"
            if expired
            else "the worker ended without settling its delivery"
        )
        decision = decide(self.config.retry, delivery.attempt, self._dice())
        return life.take_back(
            delivery,
            now_ms=now_ms,
            error=describe(cause, attempt=delivery.attempt, worker=delivery.worker, at_ms=now_ms),
            delay_ms=decision.delay_ms if isinstance(decision, RetryAfter) else 0,
        )

    def _reserve_new(self, view: GroupView, now_ms: int) -> Delivery | None:
        """A delivery of the oldest events never reserved, or None if there are none."""
        window = planning.next_window(view.heads, now_ms)
        if window is None:
            return None
        inside = [head.partition for head in view.heads if planning.belongs(head, window)]
        ends = self._store.offsets_at(inside, window.end_ms)
        fresh = life.open_delivery(
            id=uuid7(now_ms),
            group=self.config.name,
            window=window.key,
            ranges=planning.next_ranges(view.heads, window, ends, self.config.max_events),
            now_ms=now_ms,
            launch_timeout_ms=self.config.launch_timeout_ms,
        )
        frontiers = {TopicPartition(r.topic, r.partition): r.last + 1 for r in fresh.ranges}
        change = self._change(fresh)
        self._store.commit(replace(change, frontiers=frontiers, expected_version=view.version))
        return fresh

    def _put(self, delivery: Delivery) -> Delivery:
        self._store.commit(self._change(delivery))
        return delivery

    def _change(self, *deliveries: Delivery) -> Change:
        """The next states, and the dead letters that follow from them."""
        burials = tuple(
            Burial(each, self.config.filter, fingerprint(each.errors[-1]), died_ms=each.due_ms)
            for each in deliveries
            if each.outcome is Outcome.DEAD_LETTERED
        )
        return Change(group=self.config.name, deliveries=deliveries, burials=burials)

    def _until_committed(self, step: Callable[[], T]) -> T:
        for _ in range(TRIES - 1):
            try:
                return step()
            except StaleState:
                continue
        return step()
