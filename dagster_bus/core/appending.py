"""Publishers that append at the same time share one transaction.

A durable commit takes the store far longer than the events in it. So whoever finds the store idle
writes; all who come meanwhile queue, and one of them then writes for all. A publisher that is alone
never waits.
"""

import threading
from collections.abc import Sequence
from itertools import pairwise

from dagster_bus.core.clock import Clock
from dagster_bus.core.event import Batch, Published
from dagster_bus.core.store import Store
from dagster_bus.errors import BusError, UsageError

MOST_EVENTS = 10_000
"""Events in one transaction, unless a single request has more."""

LOOK_AGAIN_S = 0.05
"""How long a thread sleeps that nobody wakes, because whoever should was interrupted."""


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
    they would only queue again for the interpreter. An interrupt may come between any two steps of
    a thread, so being woken means only to look again, and nobody sleeps for long without a look."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._state = threading.Lock()
        self._queue: list[_Request] = []
        self._writer: _Request | None = None

    def append(self, batch: Batch) -> list[Published]:
        """Where the events of a batch stand, or the error that kept all of them out."""
        request = _Request(batch)
        try:
            with self._state:
                self._queue.append(request)
            while not request.is_answered:
                if self._begins_to_write(request):
                    self._write(request)
                else:
                    request.woken.acquire(timeout=LOOK_AGAIN_S)
        finally:
            while True:  # an interrupt may come here too, and the others must be able to go on
                try:
                    self._leave(request)
                    break
                except BaseException as interrupt:  # noqa: BLE001  (told as the request's error)
                    request.error = BusError(f"interrupted: {interrupt!r}")
        if request.error is not None:
            raise request.error
        return request.published or []

    def _begins_to_write(self, request: _Request) -> bool:
        with self._state:
            if self._writer is None and self._first_waiting() is request:
                self._writer = request
            return self._writer is request

    def _first_waiting(self) -> _Request | None:
        return next((each for each in self._queue if not each.is_answered), None)

    def _write(self, request: _Request) -> None:
        """Append for all who wait by now, the caller first. They leave the queue by themselves, so
        that nobody is forgotten if the caller is interrupted before it begins."""
        chosen = self._choose()
        try:
            self._answer(chosen)
        finally:
            for one in chosen:
                if one is not request and not one.is_answered:
                    one.error = BusError("the thread that appended for this one was interrupted")
            for one, following in pairwise(chosen):
                one.next = following

    def _choose(self) -> list[_Request]:
        chosen: list[_Request] = []
        events = 0
        with self._state:
            for request in self._queue:
                if request.is_answered:
                    continue
                events += request.batch.length
                if chosen and events > MOST_EVENTS:
                    break
                chosen.append(request)
        return chosen

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

    def _leave(self, request: _Request) -> None:
        """Whatever has happened, let the others go on: the next to write, and the next to know."""
        with self._state:
            if request in self._queue:
                self._queue.remove(request)
            if self._writer is request:
                self._writer = None
                _wake(self._first_waiting())
            _wake(request.next)


def _wake(request: _Request | None) -> None:
    if request is not None and request.woken.locked():
        request.woken.release()
