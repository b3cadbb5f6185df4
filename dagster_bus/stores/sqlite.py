"""The embedded store: one SQLite file, shared by the processes of one machine.

Writers take turns (BEGIN IMMEDIATE), and a reader sees the file as of one commit: so offsets are
dense and become visible in order. `synchronous=FULL` makes each commit survive a power cut.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dagster_bus.core.closing import Closing
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Batch, Event, Published, event_from_tuple
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
)
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import OffsetTrimmed, UnknownDelivery
from dagster_bus.stores import sqlite_groups as groups
from dagster_bus.stores import sqlite_log as log
from dagster_bus.stores.configs import config_from_text, config_to_text, require_same_partitions
from dagster_bus.stores.sqlite_connection import SqliteConnection, load_queries
from dagster_bus.stores.sqlite_listening import SqliteListener
from dagster_bus.stores.sqlite_rows import dead_letter_from_row, delivery_from_row, position

LARGEST_NUMBER = (1 << 63) - 1
QUERIES = load_queries()


class SqliteStore(Closing):
    """A `Store` in a SQLite file."""

    def __init__(self, path: str, *, create: bool = True) -> None:
        self._file = SqliteConnection(path, create=create)

    def declare(self, topics: Sequence[TopicConfig]) -> None:
        known = {topic.name: topic for topic in self.topics()}
        if all(known.get(topic.name) == topic for topic in topics):
            return
        with self._file.writing() as connection:
            counts = {name: count for name, count, _ in connection.execute(QUERIES["topics"])}
            for topic in topics:
                if topic.name in counts:
                    require_same_partitions(topic, counts[topic.name])
                else:
                    rows = [(topic.name, number) for number in range(topic.partitions)]
                    connection.executemany(QUERIES["insert_partition"], rows)
                connection.execute(QUERIES["put_topic"], (topic.name, config_to_text(topic)))

    def topics(self) -> list[TopicConfig]:
        with self._file.reading() as connection:
            rows = connection.execute(QUERIES["topics"]).fetchall()
        return [
            config_from_text(config) if config else TopicConfig(name, partitions)
            for name, partitions, config in rows
        ]

    def append(self, batches: Sequence[Batch], now_ms: int) -> list[list[Published]]:
        with self._file.writing() as connection:
            return log.append(connection, batches, now_ms)

    def bounds(self, topics: Sequence[str]) -> dict[TopicPartition, Bounds]:
        with self._file.reading() as connection:
            rows = connection.execute(QUERIES["bounds"], (json.dumps(topics),))
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
        with self._file.reading() as connection:
            at = (span.topic, span.partition)
            found = connection.execute(QUERIES["beginning"], at).fetchone()
            if found is None or span.first > span.last:
                return []
            id, first = found
            if span.first < first:
                raise OffsetTrimmed(*at, span.first, first)
            asked = {
                "topic": span.topic,
                "partition": span.partition,
                "first": position(id, span.first),
                "last": position(id, span.last),
                "limit": limit,
                "budget": budget,
            }
            return list(map(event_from_tuple, connection.execute(QUERIES["read_events"], asked)))

    def offsets_at(
        self, partitions: Sequence[TopicPartition], ts_ms: int
    ) -> dict[TopicPartition, int]:
        wanted = {"partitions": json.dumps(partitions), "ts": ts_ms}
        with self._file.reading() as connection:
            rows = connection.execute(QUERIES["offsets_at"], wanted)
            return {TopicPartition(topic, number): offset for topic, number, offset in rows}

    def offset_keeping(self, partition: TopicPartition, keep_bytes: int) -> int:
        wanted = {**partition._asdict(), "keep": keep_bytes}
        with self._file.reading() as connection:
            log.find_log(connection, partition)
            offset: int = connection.execute(QUERIES["offset_keeping"], wanted).fetchone()[0]
            return offset

    def trim(self, partition: TopicPartition, first: int, limit: int) -> int:
        with self._file.writing() as connection:
            return log.trim(connection, partition, first, limit)

    def compact(
        self, partition: TopicPartition, before: int, tombstones_before_ms: int, limit: int
    ) -> CompactionStep:
        with self._file.writing() as connection:
            return log.compact(connection, partition, before, tombstones_before_ms, limit)

    def listen(self) -> SqliteListener:
        return SqliteListener(self._file)

    def view(self, group: str, topics: Sequence[str], *, now_ms: int, due_limit: int) -> GroupView:
        with self._file.reading() as connection:
            return groups.view(connection, group, topics, now_ms=now_ms, due_limit=due_limit)

    def progress(self, group: str, topics: Sequence[str]) -> GroupProgress:
        with self._file.reading() as connection:
            return groups.progress(connection, group, topics)

    def delivery(self, id: str) -> Delivery:
        with self._file.reading() as connection:
            row = connection.execute(QUERIES["delivery"], (id,)).fetchone()
        if row is None:
            raise UnknownDelivery(f"there is no delivery {id!r} in this store")
        return delivery_from_row(row)

    def commit(self, change: Change) -> None:
        with self._file.writing() as connection:
            groups.commit(connection, change)

    def dead_letters(self, group: str, *, limit: int, before: int | None) -> list[DeadLetter]:
        below = before if before is not None else LARGEST_NUMBER
        with self._file.reading() as connection:
            rows = connection.execute(QUERIES["dead_letters"], (group, below, limit))
            return [dead_letter_from_row(row) for row in rows]

    def dead_letter_counts(self, group: str) -> dict[str, int]:
        with self._file.reading() as connection:
            return dict(connection.execute(QUERIES["dead_letter_counts"], (group,)).fetchall())

    def close(self) -> None:
        self._file.close()
