"""The desk of a subscriber without a group: a bounded queue of its own, handed over in order.

Whoever brings an event never waits. If the queue is full, the subscriber is disabled: it cannot
keep up, and is told so rather than being given only some of the events.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable

from dagster_bus.core.event import Event
from dagster_bus.core.ranges import place_of
from dagster_bus.live.crew import Handler
from dagster_bus.live.desk import Desk
from dagster_bus.live.jobs import Job
from dagster_bus.live.lanes import lanes_by_topic
from dagster_bus.live.office import LONGEST_S
from dagster_bus.live.telling import Teller


class Mailbox(Desk):
    """Events of a topic are handed over one after the other, in the order they came."""

    def __init__(self, teller: Teller, handler: Handler) -> None:
        super().__init__(teller, handler, lanes_by_topic)
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._incoming: deque[Job] = deque()
        self._held = 0
        """Events that came and are not dealt with."""
        self._is_disabled = False

    @property
    def is_open(self) -> bool:
        """Whether it takes events."""
        return not self._is_disabled and not self._is_stopping

    def offer(self, event: Event) -> None:
        """Take in an event; if there is no room for it, the subscriber is disabled."""
        with self._lock:
            if not self.is_open:
                return
            if self._held < self._options.queue_capacity:
                self._take_note(event)
                return
            self._is_disabled = True
        capacity = self._options.queue_capacity
        self._teller.disabled(event.topic, f"{capacity} events wait, and its queue is full")
        self.stop(self._options.timeout_s)

    def offer_patiently(self, event: Event, timeout_s: float) -> bool:
        """Take in an event as soon as there is room, within some time; says whether it was."""
        with self._room:
            if not self._room.wait_for(self._has_room, timeout_s):
                return False
            if self.is_open:
                self._take_note(event)
            return True

    @property
    def room(self) -> int:
        return self._options.queue_capacity - self._held

    def resting(self) -> Callable[[], bool]:
        """A question that is answered with yes once all that has come was dealt with."""
        return lambda: self._held == 0

    def _has_room(self) -> bool:
        return self._held < self._options.queue_capacity or not self.is_open

    def _take_note(self, event: Event) -> None:
        self._held += 1
        self._incoming.append(Job(event, place_of(event)))
        self._nudge()

    def _admit(self, now_s: float) -> None:  # noqa: ARG002
        while self._incoming:
            self._lanes.put([self._incoming.popleft()])

    def _succeeded(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        self._let_go(1)

    def _failed(self, job: Job, error: BaseException, now_s: float) -> None:  # noqa: ARG002
        self._let_go(1)

    def _returned(self, jobs: Iterable[Job], now_s: float) -> None:  # noqa: ARG002
        self._let_go(len([*jobs]))

    def _let_go(self, count: int) -> None:
        with self._room:
            self._held -= count
            self._room.notify_all()

    def _settle(self, now_s: float) -> None:  # noqa: ARG002
        if self._is_stopping:
            with self._room:
                self._held -= len(self._incoming)
                self._incoming.clear()
                self._room.notify_all()

    def _wake_at(self, now_s: float) -> float:
        return now_s + LONGEST_S

    @property
    def _is_settled(self) -> bool:
        return True
