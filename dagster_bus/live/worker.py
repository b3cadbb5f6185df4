"""A worker of a group: how it comes to work.

While it keeps up it goes the short way: one change says that its last events are done, and takes
the next. Whenever there is more to decide, it takes work the long way, delivery by delivery.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from dagster_bus.core.delivery import Delivery, OnExhausted, State
from dagster_bus.core.event import Event
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.stepping import Step, Told
from dagster_bus.core.store import Change, Store
from dagster_bus.errors import BusError, DeliveryError, StoreError, UsageError
from dagster_bus.live.crew import Handler
from dagster_bus.live.desk import TROUBLE_S
from dagster_bus.live.holding import Holder
from dagster_bus.live.pace import FIRST_TAKE, next_take
from dagster_bus.live.presence import worker_name
from dagster_bus.live.resting import is_settled
from dagster_bus.live.taking import Taking, is_suspicious, set_apart
from dagster_bus.live.telling import Teller

LOGGER = logging.getLogger("dagster_bus")

MOST_HELD = 64
"""Deliveries that a worker holds at once."""


class Worker(Holder):
    """One subscription at work for a group."""

    def __init__(self, teller: Teller, handler: Handler, config: GroupConfig, store: Store) -> None:
        office, shelf = teller.shared.offices.of(store, teller.id)
        taking = Taking(config, store, teller.shared.clock, worker_name(teller.id), shelf)
        super().__init__(teller, handler, config, taking, office)
        self._store = store
        self._take = 1 if teller.options.once else min(FIRST_TAKE, config.max_events)
        self._taken_at = 0.0
        self._was_filled = False
        self._has_news = False
        self._heard_news = False
        """The same, at the beginning of this turn."""
        self._step: Step | None = None
        """What is being written."""
        self._told: dict[str, Told] = {}
        """What it reports, by the names of deliveries."""
        self._goes_long = False
        self._doubtful: Delivery | None = None
        """What was taken, or not, when the store failed."""
        """The group is in a state in which taking work needs more than one step."""
        self._looks = 0
        self._rested = 0
        """The number of the last look that found nothing to do while nothing was held."""
        self._taking.begin()

    def ring(self) -> None:
        self._has_news = True
        self._nudge()

    def resting(self) -> Callable[[], bool]:
        """A question that is answered with yes once all that is there now was dealt with."""
        topics = self._config.topics
        ends = {at: each.end for at, each in self._store.bounds(topics).items()}
        after = self._looks + 1
        self.ring()

        def ask() -> bool:
            if self._rested < after:
                return False
            now_ms = self._clock()
            view = self._store.view(self._config.name, topics, now_ms=now_ms, due_limit=1)
            return is_settled(view, ends, self._config, now_ms)

        return ask

    @property
    def _is_eager(self) -> bool:
        """Whether it would look for work now."""
        return self._is_hungry and (self._heard_news or time.monotonic() >= self._look_at)

    def is_busy(self) -> bool:
        return self._was_filled or super().is_busy()  # of a backlog the next is taken at once

    def begin(self, now_s: float) -> None:
        if self._has_news:
            self._has_news, self._heard_news = False, True
        super().begin(now_s)

    def _wish(self, now_s: float, *, is_round: bool) -> Change | None:
        if not (is_round or self._was_filled) or not self._is_eager:
            return None
        self._heard_news = False
        if not self._is_sure(now_s):
            return None
        self._looks += 1
        self._told = {
            name: Told(ledger.held, ledger.report())
            for name, ledger in self._ledgers.items()
            if ledger.is_complete and ledger.is_plain
        }
        try:
            most, topics = self._next_take(now_s), self._config.topics
            told = [*self._told.values()]
            found = self._taking.step(told, most, lambda: self._office.ends(topics))
        except StoreError as error:
            self._wait(now_s, error)
            return None
        except BusError:  # the long way tells more of it
            found = None
        if found is None:
            self._goes_long = True
            return None
        step, pause_s = found
        if step.taken is None:
            self._was_filled = False
            self._look_at = now_s + pause_s
            if not self._ledgers:
                self._rested = self._looks
            return None
        self._look_at = now_s if step.taken.size >= self._take else now_s + pause_s
        self._step = step
        return step.change

    def _is_sure(self, now_s: float) -> bool:
        """Whether nothing is in doubt. What may have been taken while the store failed is handed
        back, as if nobody had come for it: no attempt is counted."""
        if self._doubtful is None:
            return True
        try:
            self._group.hand_back(self._doubtful)
        except StoreError as error:
            self._wait(now_s, error)
            return False
        except BusError:  # it was not taken, or is somebody else's by now
            LOGGER.debug("group %s: %s was not taken", self._config.name, self._doubtful.id)
        self._doubtful = None
        return True

    def _granted(self, now_s: float, refused: Exception | None) -> None:
        step, self._step = self._step, None
        if step is None or step.taken is None:
            return
        if refused is not None:
            self._taking.outlook.forget()
        if isinstance(refused, StoreError):
            self._doubtful = step.taken
            self._wait(now_s, refused)
        elif isinstance(refused, BusError):
            self._goes_long = True
        elif refused is not None:
            raise refused
        else:
            self._taking.outlook.did(step)
            for (name, told), left in zip(self._told.items(), step.left, strict=True):
                self._reported(name, told.report, left)
            self._note_take(step.taken, now_s)
            self._begin_work(step.taken, step.events, now_s)

    def _wait(self, now_s: float, error: StoreError) -> None:
        LOGGER.warning("group %s cannot take work now: %s", self._config.name, error)
        self._look_at = now_s + TROUBLE_S

    def _admit(self, now_s: float) -> None:
        """Take work the long way."""
        if self._goes_long:
            self._taking.outlook.forget()
        while self._goes_long and self._is_hungry:
            try:
                held = self._taking.take(self._next_take(now_s))
                if held is None:
                    self._goes_long = False
                    self._rest(now_s)
                    return
                self._open(held, now_s)
            except StoreError as error:
                self._goes_long = False
                self._wait(now_s, error)
        self._goes_long = False

    @property
    def _is_hungry(self) -> bool:
        if self._options.once and (self._handed or self._ledgers):
            return False
        enough = max(self._options.max_inflight, self._take // 4)
        return self._unfinished < enough and len(self._ledgers) < MOST_HELD

    def _next_take(self, now_s: float) -> int:
        if self._options.once:
            return 1
        self._take = next_take(
            self._take,
            filled=self._was_filled,
            took_s=now_s - self._taken_at if self._was_filled else 0.0,
            least=self._options.max_inflight,
            most=self._config.max_events,
        )
        return self._take

    def _rest(self, now_s: float) -> None:
        """There is nothing to do now: find out when there may be."""
        self._was_filled = False
        if not self._ledgers:
            self._rested = self._looks
        own = [ledger.held.id for ledger in self._ledgers.values()]
        self._look_at = now_s + self._taking.pause_s(own)

    def _open(self, held: Delivery, now_s: float) -> None:
        """Read the events of a delivery, and begin its work."""
        self._note_take(held, now_s)
        try:
            events = [*self._group.events(held)]
            if is_suspicious(held):
                held, events = self._set_apart(held, events)
        except DeliveryError as lost:
            LOGGER.warning("group %s: %s", self._config.name, lost)
            return
        except StoreError:
            with suppress(BusError):
                self._group.hand_back(held)
            raise
        except UsageError as error:  # some of them are not in the log any more
            LOGGER.warning("group %s cannot read its events: %s", self._config.name, error)
            self._group.fail(held, error)
            return
        if held.state is State.RUNNING:
            self._begin_work(held, events, now_s)

    def _note_take(self, held: Delivery, now_s: float) -> None:
        self._taken_at = now_s
        self._was_filled = held.size >= self._take

    def _set_apart(self, held: Delivery, events: list[Event]) -> tuple[Delivery, list[Event]]:
        """What is left to do of a delivery that workers died over."""
        is_to_block = self._config.on_exhausted is OnExhausted.BLOCK
        report = None if is_to_block else set_apart(held, events, self._config.order)
        if report is None:
            return self._group.give_up(held), []
        left = self._group.report(held, report) if report.size else held
        return left, [*self._group.events(left)]

    def _wake_at(self, now_s: float) -> float:
        reports = (ledger.flush_at for ledger in self._ledgers.values())
        looks = [self._next_look_at] if self._is_hungry and not self._is_stopping else []
        due = min([*reports, *self._renew_at.values(), *looks], default=now_s + TROUBLE_S)
        return max(due, self._pause_until)

    @property
    def _next_look_at(self) -> float:
        due = 0.0 if self._heard_news or self._has_news else self._look_at
        return due if self._was_filled else max(due, self._office.round_at)
