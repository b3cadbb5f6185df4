"""The desk of a subscription: hands events to the handler and hears how it went.

It works in turns, in the thread of an office, and never calls the handler itself. So it always has
time to see that one is late, that a lease is to be renewed, or that it is to stop.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable

from dagster_bus.core.store import Change
from dagster_bus.errors import BusClosedError
from dagster_bus.live.crew import Crew, Handler
from dagster_bus.live.jobs import Ended, Job
from dagster_bus.live.lanes import LaneOf, Lanes
from dagster_bus.live.office import Office
from dagster_bus.live.telling import Teller

LOGGER = logging.getLogger("dagster_bus")

STINT = 64
"""Jobs that one hand does in a row, if there is only one hand."""

COLLECT_S = 0.02
"""How often to hear of a long stint."""

TROUBLE_S = 0.5
"""How long to wait after something went wrong that should not."""

LAST_WORDS_S = 5.0
"""How long a desk that stops tries to say what became of its events."""


class Desk(ABC):
    """Takes in jobs, gives them out, and settles them, until it is told to stop."""

    def __init__(
        self, teller: Teller, handler: Handler, lane_of: LaneOf, office: Office | None = None
    ) -> None:
        options = teller.options
        self.is_rung = False
        self.wake_at = 0.0
        self._office = office or Office(None, f"bus-{teller.id}")
        self._teller = teller
        self._options = options
        self._counters = teller.shared.counters
        self._lanes = Lanes(lane_of, in_a_row=options.max_inflight == 1)
        self._crew = Crew(
            teller.id,
            handler,
            timeout_s=options.timeout_s,
            most=options.max_inflight,
            ring=self._nudge,
            hands=teller.shared.hands,
            loop=teller.shared.loop,
        )
        self._out = 0
        """Jobs that were given out and have not ended."""
        self._handed = 0
        self._stop_at: float | None = None
        self._ended: Callable[[], None] = lambda: None
        self._over = threading.Event()
        self._in_trouble = False

    def start(self, ended: Callable[[], None]) -> None:
        """Begin; `ended` is called when all is over."""
        self._ended = ended
        self._office.add(self)

    def stop(self, timeout_s: float) -> None:
        """Begin nothing more, wait for so long for what runs, and hand back the rest."""
        self._crew.halt()
        stop_at = time.monotonic() + timeout_s
        self._stop_at = stop_at if self._stop_at is None else min(self._stop_at, stop_at)
        self._nudge()

    def join(self, timeout_s: float) -> bool:
        """Wait until it has stopped; says whether it has."""
        return self._over.wait(timeout_s)

    def ring(self) -> None:
        """There may be something to do."""
        self._nudge()

    def begin(self, now_s: float) -> None:
        """The first part of a turn, as an office gives them: take in what has ended, and give out
        what is there."""
        try:
            self._begin(now_s)
        except Exception:  # noqa: BLE001
            self._trouble()

    def wish(self, now_s: float, *, is_round: bool) -> Change | None:
        """The second part: what is to be written now, if this is a round."""
        if self._in_trouble or self._is_stopping:
            return None
        try:
            return self._wish(now_s, is_round=is_round)
        except Exception:  # noqa: BLE001
            self._trouble()
            return None

    def finish(self, now_s: float, refused: Exception | None) -> bool:
        """The third part: that was written, unless it was refused. Says whether all is over."""
        try:
            if not self._in_trouble:
                self._finish(now_s, refused)
        except Exception:  # noqa: BLE001
            self._trouble()
        self.wake_at = now_s + TROUBLE_S if self._in_trouble else self._next_turn(now_s)
        self._in_trouble = False
        return self._is_over()

    def is_busy(self) -> bool:
        """Whether it has to give out work as soon as a hand is free."""
        return len(self._lanes) > 0

    def leave(self) -> None:
        """It has had its last turn."""
        try:
            self._ended()
        except Exception:  # noqa: BLE001
            self._trouble()
        self._over.set()

    def _wish(self, now_s: float, *, is_round: bool) -> Change | None:  # noqa: ARG002
        """What is to be written now, if anything and if this is a round."""
        return None

    def _granted(self, now_s: float, refused: Exception | None) -> None:  # noqa: B027
        """What was wished for was written, unless it was refused."""

    @abstractmethod
    def _admit(self, now_s: float) -> None:
        """Bring in more jobs, if there is room."""

    @abstractmethod
    def _succeeded(self, job: Job, now_s: float) -> None: ...

    @abstractmethod
    def _failed(self, job: Job, error: BaseException, now_s: float) -> None: ...

    @abstractmethod
    def _returned(self, jobs: Iterable[Job], now_s: float) -> None:
        """Some jobs will not be done here."""

    @abstractmethod
    def _settle(self, now_s: float) -> None:
        """Make known what is due to be."""

    @abstractmethod
    def _wake_at(self, now_s: float) -> float:
        """When there is something to do next, apart from handlers."""

    @property
    @abstractmethod
    def _is_settled(self) -> bool:
        """Whether all that was found out is made known."""

    @property
    def _unfinished(self) -> int:
        return len(self._lanes) + self._out

    @property
    def _is_stopping(self) -> bool:
        return self._stop_at is not None

    def _nudge(self) -> None:
        """Ask for a turn."""
        self.is_rung = True
        self._office.ring()

    def _trouble(self) -> None:
        LOGGER.exception("a subscription of %s met an error", self._teller.pattern)
        self._in_trouble = True

    def _begin(self, now_s: float) -> None:
        ended, left = self._crew.collect()
        self._take_in(left)
        self._end(ended, now_s)
        if self._is_stopping:
            self._wind_down(now_s)
        else:
            self._hand_out()

    def _finish(self, now_s: float, refused: Exception | None) -> None:
        self._granted(now_s, refused)
        if not self._is_stopping:
            self._admit(now_s)
            self._hand_out()
        self._settle(now_s)

    def _hand_out(self) -> None:
        in_a_row = STINT if self._options.max_inflight == 1 else 1
        while self._crew.is_free:
            most = min(in_a_row, 1 - self._handed) if self._options.once else in_a_row
            jobs = self._lanes.take(most) if most > 0 else []
            if not jobs:
                return
            self._count_out(jobs, 1)
            self._crew.start(jobs)

    def _take_in(self, jobs: list[Job]) -> None:
        """Jobs come back that were not begun."""
        self._lanes.put_back(jobs)
        self._count_out(jobs, -1)

    def _count_out(self, jobs: list[Job], sign: int) -> None:
        self._out += sign * len(jobs)
        self._handed += sign * len(jobs)
        self._counters.add_each("in_flight", (job.event.topic for job in jobs), sign)

    def _end(self, ended: list[Ended], now_s: float) -> None:
        self._out -= len(ended)
        for topic, number in Counter(each.job.event.topic for each in ended).items():
            self._counters.add("in_flight", topic, -number)
            self._counters.add("delivered", topic, number)
        for job, error in ended:
            self._lanes.release(job)
            if job.attempt > 1:
                self._counters.add("redelivered", job.event.topic)
            if error is None:
                self._succeeded(job, now_s)
            elif self._is_stopping and isinstance(error, BusClosedError):
                self._returned([job], now_s)  # it wanted to publish while the bus was being closed
            else:
                self._teller.failed(job, error)
                self._failed(job, error, now_s)
        if ended and self._options.once:
            self.stop(0)

    def _wind_down(self, now_s: float) -> None:
        self._take_in(self._crew.take_back())
        if now_s >= (self._stop_at or 0) and not self._crew.is_idle:
            ended, left = self._crew.abandon()
            self._end(ended, now_s)
            self._count_out(left, -1)
            for job in left:
                self._lanes.release(job)
            self._returned(left, now_s)
        self._returned(self._lanes.drain(), now_s)

    def _is_over(self) -> bool:
        if self._stop_at is None or not self._crew.is_idle or self._lanes:
            return False
        return self._is_settled or time.monotonic() > self._stop_at + LAST_WORDS_S

    def _next_turn(self, now_s: float) -> float:
        """When to have the next turn, unless somebody rings."""
        wake_at = min(self._wake_at(now_s), self._crew.next_deadline_s())
        if not self._crew.is_idle and self._options.max_inflight == 1:
            wake_at = min(wake_at, now_s + COLLECT_S)
        if self._stop_at is not None:
            wake_at = min(wake_at, max(self._stop_at, now_s + COLLECT_S))
        return wake_at
