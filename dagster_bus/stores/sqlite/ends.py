"""Where the partitions of the embedded store end, as one connection knows it.

What a connection has appended itself it need not look up again, unless another one has written in
between: SQLite says so by the file's data version, which other connections' commits change.
"""

import json
import sqlite3
from collections.abc import Sequence

from dagster_bus.core.event import Batch
from dagster_bus.core.topic import TopicPartition
from dagster_bus.stores.common import unknown_partition
from dagster_bus.stores.sqlite.connection import load_queries

QUERIES = load_queries()


class End:
    """The end of a partition while events are being added to it."""

    __slots__ = ("appended_bytes", "id", "last_ts", "next_offset")

    def __init__(self, id: int, next_offset: int, last_ts: int, appended_bytes: int) -> None:
        self.id = id
        self.next_offset = next_offset
        self.last_ts = last_ts
        self.appended_bytes = appended_bytes

    def add(self, size: int, time: int | None, now_ms: int) -> int:
        """Make room for one event, with a time of its own or without; returns its offset."""
        offset = self.next_offset
        self.next_offset = offset + 1
        self.appended_bytes += size
        self.last_ts = max(self.last_ts, now_ms if time is None else min(time, now_ms))
        return offset


class Ends:
    """The ends that a connection knows. Only while it is alone in writing they are true."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], End] = {}
        self._version: int | None = None
        self._is_committed = False

    def look(self, connection: sqlite3.Connection, batches: Sequence[Batch]) -> None:
        """Know the ends of all partitions that the batches go to."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version or not self._is_committed:
            self.known.clear()
            self._version = version
        self._is_committed = False
        missing = set()
        for batch in batches:
            for partition in set(batch.partitions):
                if (batch.topic, partition) not in self.known:
                    missing.add((batch.topic, partition))
        if missing:
            rows = connection.execute(QUERIES["ends"], (json.dumps(list(missing)),))
            self.known.update({(topic, number): End(*end) for topic, number, *end in rows})
            for at in missing - self.known.keys():
                raise unknown_partition(TopicPartition(*at))

    def keep(self) -> None:
        """What was added since the last look was committed."""
        self._is_committed = True

    def forget(self) -> None:
        """Somebody else appends by the same connection."""
        self.known.clear()
