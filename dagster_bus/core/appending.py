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
from dagster_bus.errors import BusError

MOST_EVENTS = 10_000
"""Events in one transaction, unless a single request has more."""


class _Request:
    __slots__ = ("abandoned", "batch", "error", "next", "published", "woken")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.published: list[Published] | None = None
        self.error: BaseException | None = None
        self.next: _Request | None = None
        """The one to wake next, of those that were written together."""
        self.abandoned = False
        self.woken = threading.Lock()
        self.woken.acquire()

    @property
    def is_answered(self) -> bool:
        return self.published is not None or self.error is not None


class Appender:
    """Appends batches to a store, never in two threads at once.

    Threads that were written for wake each other one after the other: if all were woken at once,
    they would only queue again for the interpreter."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._state = threading.Lock()
        self._queue: list[_Request] = []
        self._busy = False

    def append(self, batch: Batch) -> list[Published]:
        """Where the events of a batch stand, or the error that kept all of them out."""
        request = _Request(batch)
        with self._state:
            self._queue.append(request)
            waits = self._busy
            self._busy = True
        if waits:
            self._wait(request)
        try:
            if not request.is_answered:
                self._write()
        finally:
            self._wake(request.next)
        if request.error is not None:
            raise request.error
        return request.published or []

    def _wait(self, request: _Request) -> None:
        """Until the request is answered, or its thread is the one to write."""
        try:
            request.woken.acquire()
        except BaseException:  # Ctrl-C: nobody waits for the answer any more
            with self._state:
                request.abandoned = True
                was_woken = not request.woken.locked()
                was_queued = request in self._queue
                if was_queued:
                    self._queue.remove(request)
            if was_woken and was_queued:
                self._hand_on()
            elif was_woken:
                self._wake(request.next)
            raise

    def _wake(self, request: _Request | None) -> None:
        with self._state:
            while request is not None and request.abandoned:
                request = request.next
            if request is not None:
                request.woken.release()

    def _write(self) -> None:
        """Append for all who wait by now, the caller first, and call the next one to write for
        those who come later."""
        taken = self._take()
        try:
            self._answer(taken)
        except BaseException as error:  # Ctrl-C while writing: the others must not wait for ever
            for request in taken:
                if not request.is_answered:
                    request.error = BusError(f"the append was interrupted: {error!r}")
            raise
        finally:
            for request, following in pairwise(taken):
                request.next = following
            self._hand_on()

    def _take(self) -> list[_Request]:
        with self._state:
            count = events = 0
            for request in self._queue:
                events += request.batch.length
                if count and events > MOST_EVENTS:
                    break
                count += 1
            taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    def _answer(self, requests: Sequence[_Request]) -> None:
        try:
            batches = [request.batch for request in requests]
            answers = self.store.append(batches, self._clock())
        except Exception as error:  # noqa: BLE001  (it is raised where it belongs)
            if len(requests) == 1:
                requests[0].error = error
                return
            for request in requests:  # one publisher's mistake is not the others'
                self._answer([request])
            return
        for request, answer in zip(requests, answers, strict=True):
            request.published = answer

    def _hand_on(self) -> None:
        with self._state:
            if self._queue:
                self._queue[0].woken.release()
            else:
                self._busy = False
