"""Publishers that append at the same time share one transaction.

A durable commit takes the store far longer than the events in it. So whoever finds nobody waiting
leads: it takes its turn at the store, and writes for all who have come by then. A publisher that is
alone never waits.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from dagster_bus.core.clock import Clock
from dagster_bus.core.event import Batch, Published
from dagster_bus.core.store import Store
from dagster_bus.errors import BusError, UsageError

MOST_EVENTS = 10_000
"""Events in one transaction, unless a single request has more."""

PATIENCE_S = 0.05
"""How long a thread sleeps that nobody wakes, because whoever should was interrupted."""

TELLING_S = 0.002
"""How long a writer waits at most until all of the last transaction have been told."""


class _Request:
    __slots__ = ("batch", "error", "next", "published", "woken")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.published: list[Published] | None = None
        self.error: BaseException | None = None
        self.next: _Request | None = None
        """The one to wake next, of those that were written together."""
        self.woken = threading.Lock()
        self.woken.acquire()

    @property
    def is_answered(self) -> bool:
        return self.published is not None or self.error is not None


class Appender:
    """Appends batches to a store, never in two threads at once.

    Threads that were written for wake each other one after the other: if all were woken at once,
    they would only queue again for the interpreter. Nor does the next one write before all of them
    have been told: it would fight with them for the interpreter at each step, and leave those
    behind who come right back with their next event.

    An interrupt may come between any two steps of a thread. So what must be given back is held by
    `with` blocks, being woken means no more than to look, and who was not woken for a while takes
    a turn itself, and with it the place of whoever is gone."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._turn = threading.Lock()
        """Held while writing."""
        self._state = threading.Lock()
        self._queue: list[_Request] = []
        """Those whom nobody has begun to write for; the first of them leads."""
        self._begun: list[_Request] = []
        """Those whom the holder of the turn writes for."""
        self._telling = threading.Lock()
        """Locked until the last of those who were written for has been told."""

    def append(self, batch: Batch) -> list[Published]:
        """Where the events of a batch stand, or the error that kept all of them out."""
        request = _Request(batch)
        try:
            with self._state:
                leads = not self._queue
                self._queue.append(request)
            if not leads:
                request.woken.acquire(timeout=PATIENCE_S)
            while not request.is_answered:
                with self._turn:
                    if not request.is_answered:
                        self._telling.acquire(timeout=TELLING_S)
                        self._write()
        except BaseException:
            self._forget(request)
            raise
        if request.next is not None:
            _release(request.next.woken)
        else:
            _release(self._telling)
        if request.error is not None:
            raise request.error
        return request.published or []

    def _write(self) -> None:
        """Append for those who wait by now. The caller has the turn."""
        if self._begun:
            self._give_up_begun()
        with self._state:
            self._begun = self._choose()
            del self._queue[: len(self._begun)]
            if self._queue:
                _release(self._queue[0].woken)  # to lead the rest
        self._answer(self._begun)
        if len(self._begun) > 1:
            for one, following in pairwise(self._begun):
                one.next = following
        self._begun = []

    def _give_up_begun(self) -> None:
        """Tell those whom an interrupted thread began to write for; some of them may be in the
        queue still."""
        for request in self._begun:
            if not request.is_answered:
                request.error = BusError("the thread that appended for this one was interrupted")
        with self._state:
            self._queue = [request for request in self._queue if not request.is_answered]

    def _forget(self, request: _Request) -> None:
        """Whoever was interrupted before its events were written does not want them written."""
        with self._state:
            if request in self._queue:
                self._queue.remove(request)
                if self._queue:
                    _release(self._queue[0].woken)

    def _choose(self) -> list[_Request]:
        """The first of the queue, as many as one transaction takes."""
        if len(self._queue) == 1:
            return self._queue[:]
        events = 0
        for count, request in enumerate(self._queue):
            events += request.batch.length
            if count and events > MOST_EVENTS:
                return self._queue[:count]
        return self._queue[:]

    def _answer(self, requests: Sequence[_Request]) -> None:
        try:
            batches = [request.batch for request in requests]
            answers = self.store.append(batches, self._clock())
        except UsageError as error:
            if len(requests) == 1:
                requests[0].error = error
                return
            for request in requests:  # one publisher's mistake is not the others'
                self._answer([request])
        except Exception as error:  # noqa: BLE001  (raised by each; the events may be there or not)
            for request in requests:
                request.error = error
        else:
            for request, answer in zip(requests, answers, strict=True):
                request.published = answer


def _release(lock: threading.Lock) -> None:
    """Unlock what may have been unlocked by somebody else already."""
    with suppress(RuntimeError):
        lock.release()
