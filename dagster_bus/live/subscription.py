"""A subscription, as the one who made it sees it."""

import threading
import time
from collections.abc import Callable, Sequence

from dagster_bus.live.crew import handling
from dagster_bus.live.desk import Desk
from dagster_bus.live.following import Follower
from dagster_bus.live.mailbox import Mailbox
from dagster_bus.live.telling import Shared
from dagster_bus.live.worker import Worker

SPARE_S = 1.0
"""How much longer than it may take to stop to wait for a desk that stops."""


class Subscription:
    """A handler at work on a bus, until it is taken off."""

    def __init__(
        self,
        id: str,
        pattern: str,
        topics: Sequence[str],
        desk: Worker | Mailbox,
        followers: Sequence[Follower],
        shared: Shared,
    ) -> None:
        self.id = id
        self.pattern = pattern
        self.topics = tuple(topics)
        self._desk: Desk = desk
        self._rests = [desk.resting, *(each.resting for each in followers)]
        self._followers = followers
        self._shared = shared
        self._over = threading.Event()

    @property
    def is_active(self) -> bool:
        """Whether it gets events: it was not taken off, nor disabled, nor is it over."""
        return not self._over.is_set()

    def start(self, ended: Callable[[], None]) -> None:
        """Begin; `ended` is called once when it is over, for whatever reason."""

        def over() -> None:
            self._over.set()
            ended()

        if isinstance(self._desk, Mailbox):
            for follower in self._followers:
                follower.start(self.id, self._desk)
        self._desk.start(over)

    def unsubscribe(self, timeout: float = 30.0) -> None:
        """Hand over nothing more. Handlers at work are waited for so long, unless one of them is
        the caller; what was not begun goes back to the group at once. Harmless when repeated."""
        if self.is_active:
            self._shared.counters.add_each("disabled_by_hand", self.topics)
        self.stop(timeout)
        if handling.get() != self.id:
            self.join(time.monotonic() + timeout)

    def stop(self, timeout_s: float) -> None:
        """Begin to end."""
        self._desk.stop(timeout_s)
        for follower in self._followers:
            follower.ring()

    def join(self, until_s: float) -> None:
        """Wait until it has ended, until a time at most, and a little longer."""
        self._desk.join(max(until_s - time.monotonic(), 0) + SPARE_S)
        for follower in self._followers:
            follower.join(SPARE_S)

    def resting(self) -> Callable[[], bool]:
        """A question that is answered with yes once all that was published by now is dealt with,
        or waits for another attempt."""
        *questions, last = [rests() for rests in reversed(self._rests)]  # the desk's comes last
        return lambda: self._over.is_set() or (all(ask() for ask in questions) and last())
