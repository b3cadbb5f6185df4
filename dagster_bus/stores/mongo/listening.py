"""Waiting for appends to a MongoDB store by whatever process.

All listeners of a store share one thread that follows the changes of the counters: by a change
stream, or by looking at them again and again while there is none.
"""

import threading
import time
from contextlib import suppress

from pymongo.change_stream import ChangeStream
from pymongo.errors import PyMongoError

from dagster_bus.core.closing import Closing
from dagster_bus.errors import BusError
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import Document

AWAIT_MS = 250
"""How long the server may wait for a change before it says that there is none."""

LOOK_EVERY_S = 0.012
LOOKS_FOR_S = 2.0
"""How long to look at the counters before a change stream is tried again."""

WATCH_S = 5.0
CLOSE_S = 5.0


class MongoListener(Closing):
    """Knows how much it has heard of."""

    def __init__(self, ear: "Ear") -> None:
        self._ear = ear
        self._heard = ear.heard

    def wait(self, timeout_s: float) -> bool:
        heard = self._ear.wait_beyond(self._heard, timeout_s)
        if heard == self._heard:
            return False
        self._heard = heard
        return True

    def close(self) -> None:
        pass  # the thread serves the next one, and ends with the store


class Ear(Closing):
    """Hears of appends from the first listener on. What comes while one stream follows another is
    made up for by waking everybody."""

    def __init__(self, connection: MongoConnection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._heard = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def heard(self) -> int:
        """A number that grows whenever something may have been appended."""
        return self._heard

    def listen(self) -> MongoListener:
        self._connection.require_open()
        with self._changed:
            if self._thread is None:
                stream = self._try_to_watch()
                total = self._total()
                self._thread = threading.Thread(
                    target=self._run, args=(stream, total), name="dagster-bus-ear", daemon=True
                )
                self._thread.start()
        return MongoListener(self)

    def wait_beyond(self, heard: int, timeout_s: float) -> int:
        """Wait until the number is another one, for so long at most; returns it."""
        with self._changed:
            self._changed.wait_for(lambda: self._heard != heard, timeout_s)
            return self._heard

    def close(self) -> None:
        self._closed.set()
        self._wake()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self, stream: ChangeStream[Document] | None, total: int) -> None:
        while not self._closed.is_set():
            if stream is not None:
                self._follow(stream)
                self._wake()
            total = self._look(total)
            stream = self._try_to_watch()
            self._wake()

    def _follow(self, stream: ChangeStream[Document]) -> None:
        """Wake listeners at each change, until the stream breaks."""
        with suppress(BusError, PyMongoError), stream:
            while not self._closed.is_set() and stream.alive:
                with self._connection.bounded():
                    change = stream.try_next()
                if change is not None:
                    self._wake()

    def _look(self, total: int) -> int:
        """Wake listeners whenever the counters come to another sum, for some time."""
        deadline = time.monotonic() + LOOKS_FOR_S
        while time.monotonic() < deadline and not self._closed.wait(LOOK_EVERY_S):
            with suppress(BusError):
                found = self._total()
                if found != total:
                    total = found
                    self._wake()
        return total

    def _wake(self) -> None:
        with self._changed:
            self._heard += 1
            self._changed.notify_all()

    def _try_to_watch(self) -> ChangeStream[Document] | None:
        """A change stream, or None if there is none to be had."""
        counters = self._connection.database["counters"]
        with suppress(BusError), self._connection.bounded(WATCH_S):
            return counters.watch([{"$project": {"_id": True}}], max_await_time_ms=AWAIT_MS)
        return None

    def _total(self) -> int:
        """All offsets ever given, added up."""
        with self._connection.reading() as session:
            found = self._connection.database["counters"].aggregate(
                [{"$group": {"_id": None, "total": {"$sum": "$nextOffset"}}}], session=session
            )
            return sum(each["total"] for each in found)
