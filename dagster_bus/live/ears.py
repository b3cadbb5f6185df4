"""Waking the subscriptions of a process: one thread for each store listens for all of them.

A store's listener may wake for whatever is written, and a group at work writes all the time. So the
thread looks which topics have grown, and wakes only those who read them.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dagster_bus.core.store import Store
from dagster_bus.errors import StoreError

LOGGER = logging.getLogger("dagster_bus")

ASK_EVERY_S = 0.1
"""How often a listening thread looks whether it is to end."""

TROUBLE_S = 1.0
STOP_S = 5.0

Ring = Callable[[], None]


class _Reader(NamedTuple):
    store: Store
    topics: frozenset[str]
    ring: Ring


class Ears:
    """Rings whoever reads a topic when something was appended to it, by whatever process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, _Reader] = {}
        self._threads: dict[Store, threading.Thread] = {}
        self._closed = threading.Event()

    def add(self, id: str, store: Store, topics: Iterable[str], ring: Ring) -> None:
        with self._lock:
            self._readers[id] = _Reader(store, frozenset(topics), ring)
            if store not in self._threads:
                thread = threading.Thread(
                    target=self._run, args=(store,), name="bus-ears", daemon=True
                )
                self._threads[store] = thread
                thread.start()
        ring()  # what came before it was heard of

    def remove(self, id: str) -> None:
        with self._lock:
            self._readers.pop(id, None)

    def ring(self, *topics: str) -> None:
        """Wake those who read some topics."""
        grown = frozenset(topics)
        with self._lock:
            rings = [each.ring for each in self._readers.values() if each.topics & grown]
        for ring in rings:
            ring()

    def close(self) -> None:
        """Stop listening. Harmless when repeated."""
        self._closed.set()
        for thread in self._threads.values():
            if thread is not threading.current_thread():
                thread.join(STOP_S)

    def _run(self, store: Store) -> None:
        """A store that cannot be reached is tried again; until then everybody looks for himself."""
        while not self._closed.is_set():
            try:
                self._listen(store)
            except StoreError as error:
                if not self._closed.is_set():
                    LOGGER.warning("cannot listen for new events: %s", error)
                self._closed.wait(TROUBLE_S)

    def _listen(self, store: Store) -> None:
        seen: Counter[str] = Counter()
        with store.listen() as listener:
            while not self._closed.is_set():
                if listener.wait(ASK_EVERY_S):
                    found = self._ends(store)
                    self.ring(*(topic for topic, end in found.items() if end != seen[topic]))
                    seen = found

    def _ends(self, store: Store) -> Counter[str]:
        """How many events each topic has had, of those that are read."""
        with self._lock:
            readers = [each for each in self._readers.values() if each.store is store]
        topics = frozenset[str]().union(*(each.topics for each in readers))
        ends: Counter[str] = Counter()
        for at, bounds in store.bounds(sorted(topics)).items():
            ends[at.topic] += bounds.end
        return ends
