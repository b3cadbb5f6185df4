"""Following topics into a mailbox: a thread that reads what is appended, as soon as it is.

What was there before the follower had caught up is brought at the pace of the handler, as the log
keeps it anyway. What comes afterwards must find room.
"""

import heapq
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from dagster_bus.core.clock import Clock
from dagster_bus.core.event import Event
from dagster_bus.core.position import Start, first_offsets
from dagster_bus.core.store import Bounds, Store
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicPartition
from dagster_bus.errors import BusError, OffsetTrimmed
from dagster_bus.live.mailbox import Mailbox

LOGGER = logging.getLogger("dagster_bus")

LOOK_EVERY_S = 0.5
PATIENCE_S = 0.1
"""How long to wait for room before looking whether there is still somebody to wait for."""

_by_time = attrgetter("ts", "topic", "partition", "offset")


class Follower:
    """Reads some topics of one store from a place on, which is fixed when it is made."""

    def __init__(
        self, store: Store, topics: Sequence[str], start: Start, wanted: EventFilter, clock: Clock
    ) -> None:
        self.store = store
        self.topics = topics
        self._wanted = wanted
        self._clock = clock
        self._bell = threading.Event()
        self._has_caught_up = False
        self._positions = first_offsets(start, store, store.bounds(topics))
        self._thread: threading.Thread | None = None

    def start(self, id: str, mailbox: Mailbox) -> None:
        """Bring events until the mailbox is closed."""
        self._thread = threading.Thread(
            target=self._run, args=(mailbox,), name=f"bus-{id}-follower", daemon=True
        )
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until it has seen that the mailbox is closed."""
        self.ring()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def ring(self) -> None:
        self._bell.set()

    def resting(self) -> Callable[[], bool]:
        """A question that is answered with yes once it has brought all that is there now."""
        ends = {at: each.end for at, each in self.store.bounds(self.topics).items()}
        self.ring()
        return lambda: all(self._positions[at] >= end for at, end in ends.items())

    def _run(self, mailbox: Mailbox) -> None:
        while mailbox.is_open:
            try:
                self._bring(mailbox, self.store.bounds(self.topics))
            except BusError as error:
                if not mailbox.is_open:
                    return
                LOGGER.warning("a subscriber cannot be brought its events: %s", error)
            self._bell.wait(LOOK_EVERY_S)
            self._bell.clear()

    def _bring(self, mailbox: Mailbox, bounds: Mapping[TopicPartition, Bounds]) -> None:
        coming = sum(max(each.end - self._positions[at], 0) for at, each in bounds.items())
        self._has_caught_up = self._has_caught_up or coming <= mailbox.room
        try:
            for event in self._between(bounds):
                if self._is_wanted(event) and not self._hand_over(mailbox, event):
                    return
                self._positions[TopicPartition(event.topic, event.partition)] = event.offset + 1
        except OffsetTrimmed as trimmed:
            self._skip(mailbox, trimmed)
        else:
            for at, each in bounds.items():  # the last ones may have been taken out of the log
                self._positions[at] = max(self._positions[at], each.end)

    def _hand_over(self, mailbox: Mailbox, event: Event) -> bool:
        """Whether the mailbox is open still."""
        if self._has_caught_up:
            mailbox.offer(event)
        else:
            while not mailbox.offer_patiently(event, PATIENCE_S):
                pass
        return mailbox.is_open

    def _is_wanted(self, event: Event) -> bool:
        if event.is_expired(self._clock()):
            return False
        return not self._wanted or self._wanted.matches(event.attributes, event.key)

    def _skip(self, mailbox: Mailbox, trimmed: OffsetTrimmed) -> None:
        """The log was trimmed faster than it is read: what is left of it goes on."""
        LOGGER.warning("a subscriber has missed events: %s", trimmed)
        bounds = self.store.bounds(self.topics)
        for at, each in bounds.items():
            self._positions[at] = max(self._positions[at], each.first)
        if mailbox.is_open:
            self.ring()

    def _between(self, bounds: Mapping[TopicPartition, Bounds]) -> Iterator[Event]:
        spans = [
            OffsetRange(*at, self._positions[at], each.end - 1)
            for at, each in bounds.items()
            if self._positions[at] < each.end
        ]
        logs = (self.store.iterate(span, shared_by=len(spans)) for span in spans)
        return heapq.merge(*logs, key=_by_time)
