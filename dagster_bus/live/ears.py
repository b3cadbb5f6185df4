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
        self._rings: dict[str, tuple[Ring, ...]] = {}
        """Whom to wake, by topic …"""
        self._read: dict[Store, list[str]] = {}
        """… and the topics that somebody reads. Both are made anew, and never changed: publishers
        and listening threads look at them without a lock."""
        self._threads: dict[Store, threading.Thread] = {}
        self._closed = threading.Event()

    def add(self, id: str, store: Store, topics: Iterable[str], ring: Ring) -> None:
        with self._lock:
            self._readers[id] = _Reader(store, frozenset(topics), ring)
            self._note_readers()
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
            self._note_readers()

    def ring(self, topic: str) -> None:
        """Wake those who read a topic."""
        for ring in self._rings.get(topic, ()):
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
                    for topic, end in found.items():
                        if end != seen[topic]:
                            self.ring(topic)
                    seen = found

    def _note_readers(self) -> None:
        rings: dict[str, tuple[Ring, ...]] = {}
        read: dict[Store, set[str]] = {}
        for reader in self._readers.values():
            read.setdefault(reader.store, set()).update(reader.topics)
            for topic in reader.topics:
                rings[topic] = (*rings.get(topic, ()), reader.ring)
        self._rings = rings
        self._read = {store: sorted(topics) for store, topics in read.items()}

    def _ends(self, store: Store) -> Counter[str]:
        """How many events each topic has had, of those that are read."""
        ends: Counter[str] = Counter()
        for at, bounds in store.bounds(self._read.get(store, [])).items():
            ends[at.topic] += bounds.end
        return ends
