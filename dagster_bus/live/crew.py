"""How a subscription's handler is called: by the bus's threads, or on its event loop.

One owner gives out jobs and collects what came of them. A handler that overruns its time keeps its
thread, which is not counted on any more; another one takes its place.
"""

import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import Any

from dagster_bus.core.event import Event
from dagster_bus.live.errors import HandlerTimeout
from dagster_bus.live.hands import Hands
from dagster_bus.live.jobs import Ended, Job
from dagster_bus.live.loop import LoopThread
from dagster_bus.live.stint import Stint

Handler = Callable[[Event], Any]
"""Takes an event. What it returns is not looked at, unless it can be awaited: then it is."""

MOST_STUCK = 100
"""Threads that may be stuck in overdue calls of one handler before no more are begun."""

QUICK_S = 0.01
"""A handler whose last jobs took no longer does not need a thread for itself."""

handling: ContextVar[str | None] = ContextVar("handling", default=None)
"""The subscription whose handler runs here, if any."""


def is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004  (its kind is asked for)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


class Crew:
    """At most so many stints of one handler at a time."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        *,
        timeout_s: float,
        most: int,
        ring: Callable[[], None],
        hands: Hands,
        loop: LoopThread,
    ) -> None:
        self._name = name
        self._handler = handler
        self._timeout_s = timeout_s
        self._most = most
        self._ring = ring
        self._hands = hands
        self._loop = loop
        self._is_async = is_async(handler)
        self._stints: dict[Stint, Future[None] | None] = {}
        self._out = 0
        """Stints that threads were given, and have not come back from …"""
        self._back: deque[Stint] = deque()
        """… but for these."""
        self._is_quick = False
        self._halted = threading.Event()

    @property
    def is_free(self) -> bool:
        """Whether another stint can be begun."""
        stuck = self._out - len(self._back) - len(self._stints)
        return len(self._stints) < self._most and (self._is_async or stuck < MOST_STUCK)

    @property
    def is_idle(self) -> bool:
        return not self._stints

    def start(self, jobs: list[Job]) -> None:
        """Let jobs be done, one after the other."""
        stint = Stint(jobs, self._halted)
        if self._is_async:
            self._stints[stint] = self._loop.start(self._work(stint))
            return
        self._stints[stint] = None
        self._out += 1
        give = self._hands.give_quick if self._is_quick else self._hands.give
        give(partial(self._do, stint))

    def collect(self) -> tuple[list[Ended], list[Job]]:
        """What has ended, in time or not; and jobs of stints that are over that were not begun."""
        while self._back:
            self._back.popleft()
            self._out -= 1
        ended: list[Ended] = []
        left: list[Job] = []
        overdue_s = time.monotonic() - self._timeout_s
        for stint in [*self._stints]:
            overdue = stint.give_up(overdue_s)
            ended += stint.collect()
            if overdue is not None:
                late = f"the handler took longer than {self._timeout_s:g} s"
                ended.append(Ended(overdue, HandlerTimeout(late)))
            if stint.is_over:
                ended += stint.collect()
                left += stint.take_back()
                self._dismiss(stint, cancel=overdue is not None)
        return ended, left

    def next_deadline_s(self) -> float:
        """When the first of the present jobs is overdue."""
        begun = [at for stint in self._stints if (at := stint.begun_s()) is not None]
        return min(begun, default=float("inf")) + self._timeout_s

    def halt(self) -> None:
        """Begin no more jobs, from this moment on. May be called by anybody."""
        self._halted.set()

    def take_back(self) -> list[Job]:
        """The jobs that were given out and not begun; they will not be."""
        return [job for stint in self._stints for job in stint.take_back()]

    def abandon(self) -> tuple[list[Ended], list[Job]]:
        """Wait no longer for what was given out; returns what has ended by now, and what runs or
        was not begun."""
        left = self.take_back()
        left += [job for stint in self._stints if (job := stint.give_up()) is not None]
        ended = [each for stint in self._stints for each in stint.collect()]
        for stint in [*self._stints]:
            self._dismiss(stint, cancel=True)
        return ended, left

    def _dismiss(self, stint: Stint, *, cancel: bool) -> None:
        future = self._stints.pop(stint)
        if cancel and future is not None:
            future.cancel()

    def _do(self, stint: Stint) -> None:
        """Do a stint in this thread."""
        begun_s = time.monotonic()
        handling.set(self._name)
        while (job := stint.begin()) is not None:
            try:
                result = self._handler(job.event)
                if result is not None and inspect.isawaitable(result):
                    self._loop.start(_waiting_for(result)).result()
            except BaseException as error:  # noqa: BLE001  (whatever it is, the event failed)
                stint.end(job, error)
            else:
                stint.end(job, None)
        self._is_quick = time.monotonic() - begun_s < QUICK_S
        self._back.append(stint)
        self._ring()

    async def _work(self, stint: Stint) -> None:
        """Do a stint on the event loop."""
        handling.set(self._name)
        while (job := stint.begin()) is not None:
            try:
                await self._handler(job.event)
            except BaseException as error:  # noqa: BLE001
                stint.end(job, error)
            else:
                stint.end(job, None)
        self._ring()


async def _waiting_for(result: Awaitable[object]) -> None:
    await result
