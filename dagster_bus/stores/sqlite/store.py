"""The embedded store: one SQLite file, shared by the processes of one machine.

Writers take turns (BEGIN IMMEDIATE), and a reader sees the file as of one commit: so offsets are
dense and become visible in order. `synchronous=FULL` makes each commit survive a power cut.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.closing import Closing
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Batch, Event, Published
from dagster_bus.core.ranges import Place
from dagster_bus.core.store import (
    LEAST_EVENTS,
    PAGE_BYTES,
    PAGE_EVENTS,
    Bounds,
    Change,
    CompactionStep,
    DeadLetter,
    GroupProgress,
    GroupView,
    LetterQuery,
)
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import BusError, StaleState, UnknownDelivery
from dagster_bus.stores.common import try_commit
from dagster_bus.stores.configs import config_from_text, config_to_text, require_same_partitions
from dagster_bus.stores.sqlite import groups, letters, log
from dagster_bus.stores.sqlite.connection import SqliteConnection, load_queries
from dagster_bus.stores.sqlite.ends import Ends
from dagster_bus.stores.sqlite.listening import SqliteListener
from dagster_bus.stores.sqlite.rows import delivery_from_row

LARGEST_NUMBER = (1 << 63) - 1
QUERIES = load_queries()


class SqliteStore(Closing):
    """A `Store` in a SQLite file."""

    def __init__(self, path: str, *, create: bool = True) -> None:
        self._file = SqliteConnection(path, create=create)
        self._ends = Ends()

    def declare(self, topics: Sequence[TopicConfig]) -> None:
        known = {topic.name: topic for topic in self.topics()}
        if all(known.get(topic.name) == topic for topic in topics):
            return

        def put(connection: sqlite3.Connection) -> None:
            counts = {name: count for name, count, _ in connection.execute(QUERIES["topics"])}
            for topic in topics:
                if topic.name in counts:
                    require_same_partitions(topic, counts[topic.name])
                else:
                    rows = [(topic.name, number) for number in range(topic.partitions)]
                    connection.executemany(QUERIES["insert_partition"], rows)
                connection.execute(QUERIES["put_topic"], (topic.name, config_to_text(topic)))

        self._file.write(put)

    def topics(self) -> list[TopicConfig]:
        rows = self._file.read(lambda c: c.execute(QUERIES["topics"]).fetchall())
        return [
            config_from_text(config) if config else TopicConfig(name, partitions)
            for name, partitions, config in rows
        ]

    def append(self, batches: Sequence[Batch], now_ms: int) -> list[list[Published]]:
        return self._file.write(
            lambda c: log.append(c, self._ends, batches, now_ms), self._ends.keep
        )

    def bounds(self, topics: Sequence[str]) -> dict[TopicPartition, Bounds]:
        asked = (json.dumps(topics),)
        rows = self._file.read(lambda c: c.execute(QUERIES["bounds"], asked).fetchall())
        return {TopicPartition(topic, number): Bounds(*rest) for topic, number, *rest in rows}

    def read(self, span: OffsetRange, limit: int) -> list[Event]:
        return self._page(span, limit, LARGEST_NUMBER)

    def iterate(self, span: OffsetRange, shared_by: int = 1) -> Iterator[Event]:
        first, most = span.first, max(PAGE_EVENTS // shared_by, LEAST_EVENTS)
        while page := self._page(replace(span, first=first), most, PAGE_BYTES // shared_by):
            yield from page
            first = page[-1].offset + 1

    def _page(self, span: OffsetRange, limit: int, budget: int) -> list[Event]:
        """The first events of a range: so many, of so many bytes, and at least one if any."""
        return self._file.read(lambda c: log.page(c, span, limit, budget))

    def offsets_at(
        self, partitions: Sequence[TopicPartition], ts_ms: int
    ) -> dict[TopicPartition, int]:
        wanted = {"partitions": json.dumps(partitions), "ts": ts_ms}
        rows = self._file.read(lambda c: c.execute(QUERIES["offsets_at"], wanted).fetchall())
        return {TopicPartition(topic, number): offset for topic, number, offset in rows}

    def offset_keeping(self, partition: TopicPartition, keep_bytes: int) -> int:
        return self._file.read(lambda c: log.offset_keeping(c, partition, keep_bytes))

    def trim(self, partition: TopicPartition, first: int, limit: int) -> int:
        return self._file.write(lambda c: log.trim(c, partition, first, limit))

    def compact(
        self, partition: TopicPartition, before: int, tombstones_before_ms: int, limit: int
    ) -> CompactionStep:
        return self._file.write(
            lambda c: log.compact(c, partition, before, tombstones_before_ms, limit)
        )

    def listen(self) -> SqliteListener:
        return SqliteListener(self._file)

    def view(self, group: str, topics: Sequence[str], *, now_ms: int, due_limit: int) -> GroupView:
        return self._file.read(
            lambda c: groups.view(c, group, topics, now_ms=now_ms, due_limit=due_limit)
        )

    def progress(self, group: str, topics: Sequence[str]) -> GroupProgress:
        return self._file.read(lambda c: groups.progress(c, group, topics))

    def delivery(self, id: str) -> Delivery:
        row = self._file.read(lambda c: c.execute(QUERIES["delivery"], (id,)).fetchone())
        if row is None:
            raise UnknownDelivery(f"there is no delivery {id!r} in this store")
        return delivery_from_row(row)

    def commit(self, change: Change) -> None:
        def write(connection: sqlite3.Connection) -> None:
            if change.burials or change.told:
                self._ends.forget()  # what comes with the change is appended to the log
            groups.commit(connection, change)

        if change.lasting:
            self._file.write(write)
        else:
            self._file.note(write)

    def commit_all(self, changes: Sequence[Change]) -> list[BusError | None]:
        """Hardly ever is one of them stale. Then each is written by itself."""

        def write(connection: sqlite3.Connection) -> None:
            if any(change.burials or change.told for change in changes):
                self._ends.forget()
            groups.commit(connection, *changes)

        try:
            if any(change.lasting for change in changes):
                self._file.write(write)
            else:
                self._file.note(write)
        except StaleState:
            return [try_commit(self, change) for change in changes]
        return [None] * len(changes)

    @property
    def takes_turns(self) -> bool:
        return True

    def fitting(self, span: OffsetRange, most_bytes: int) -> tuple[int, int]:
        return self._file.read(lambda c: log.fitting(c, span, most_bytes))

    def most_urgent(self, spans: Sequence[OffsetRange]) -> int | None:
        return self._file.read(lambda c: log.most_urgent(c, spans))

    def holders(self, group: str, spans: Sequence[OffsetRange]) -> list[tuple[Place, str]]:
        return self._file.read(lambda c: groups.holders(c, group, spans))

    def deliveries(self, ids: Sequence[str]) -> list[Delivery]:
        return self._file.read(lambda c: groups.deliveries(c, ids))

    def open_deliveries(self, group: str, state: State | None = None) -> list[Delivery]:
        return self._file.read(lambda c: groups.open_deliveries(c, group, state))

    def groups(self) -> list[str]:
        rows = self._file.read(lambda c: c.execute(QUERIES["groups"]).fetchall())
        return [name for (name,) in rows]

    def breaker(self, group: str) -> Breaker:
        return self._file.read(lambda c: groups.breaker(c, group))

    def dead_letters(
        self, query: LetterQuery, *, limit: int, before: int | None = None
    ) -> list[DeadLetter]:
        return self._file.read(lambda c: letters.find(c, query, limit, before))

    def dead_letter_counts(self, group: str) -> dict[str, int]:
        return dict(
            self._file.read(lambda c: c.execute(QUERIES["dead_letter_counts"], (group,)).fetchall())
        )

    def redriven(self, group: str, spans: Sequence[OffsetRange]) -> list[Event]:
        return self._file.read(lambda c: letters.redriven(c, group, spans))

    def purge(self, group: str, died_before_ms: int, limit: int) -> int:
        return self._file.write(lambda c: letters.purge(c, group, died_before_ms, limit))

    def close(self) -> None:
        self._file.close()
