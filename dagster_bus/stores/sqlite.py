"""The embedded store: one SQLite file, shared by the processes of one machine.

Writers take turns (BEGIN IMMEDIATE), and a reader sees the file as of one commit: so offsets are
dense and become visible in order. `synchronous=FULL` makes each commit survive a power cut.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence

from dagster_bus.core.closing import Closing
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Event, NewEvent, Published
from dagster_bus.core.store import (
    Burial,
    Change,
    DeadLetter,
    GroupProgress,
    GroupView,
    PartitionHead,
    Tally,
)
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import (
    PartitionCountChanged,
    StaleState,
    UnknownDelivery,
    UnknownTopic,
)
from dagster_bus.stores.sqlite_connection import SqliteConnection, load_queries
from dagster_bus.stores.sqlite_rows import (
    dead_letter_from_row,
    delivery_from_row,
    delivery_to_row,
    event_from_row,
    position,
)

PAGE = 1_000
QUERIES = load_queries()


class SqliteStore(Closing):
    """A `Store` in a SQLite file."""

    def __init__(self, path: str, *, create: bool = True) -> None:
        self._file = SqliteConnection(path, create=create)

    def declare(self, topics: Sequence[TopicConfig]) -> None:
        with self._file.reading() as connection:
            known = dict(connection.execute(QUERIES["partition_counts"]).fetchall())
        if all(known.get(topic.name) == topic.partitions for topic in topics):
            return
        with self._file.writing() as connection:
            known = dict(connection.execute(QUERIES["partition_counts"]).fetchall())
            for topic in topics:
                if topic.name not in known:
                    rows = [(topic.name, number) for number in range(topic.partitions)]
                    connection.executemany(QUERIES["insert_partition"], rows)
                elif known[topic.name] != topic.partitions:
                    raise PartitionCountChanged(
                        f"topic {topic.name} has {known[topic.name]} partitions in the store and "
                        f"is declared with {topic.partitions}: keys would move to other "
                        "partitions and lose their order. Declare the old number, or a new topic"
                    )

    def topics(self) -> list[TopicConfig]:
        with self._file.reading() as connection:
            rows = connection.execute(QUERIES["partition_counts"])
            return [TopicConfig(name, partitions) for name, partitions in rows]

    def append(self, events: Sequence[NewEvent], now_ms: int) -> list[Published]:
        names = json.dumps(sorted({event.topic for event in events}))
        with self._file.writing() as connection:
            ends = {
                (topic, partition): _End(partition_id, next_offset, max(last_ts, now_ms))
                for topic, partition, partition_id, next_offset, last_ts in connection.execute(
                    QUERIES["partitions_of_topics"], (names,)
                )
            }
            rows = []
            published = []
            for event in events:
                end = ends.get((event.topic, event.partition))
                if end is None:
                    raise UnknownTopic(
                        f"partition {event.partition} of topic {event.topic!r} is not in the store"
                    )
                offset = end.take()
                rows.append((position(end.id, offset), end.ts, *event[2:]))
                published.append(Published(event.topic, event.partition, offset, event.id, end.ts))
            connection.executemany(QUERIES["insert_event"], rows)
            connection.executemany(
                QUERIES["advance_partition"],
                [(end.next_offset, end.ts, end.id) for end in ends.values() if end.taken],
            )
        return published

    def read(self, span: OffsetRange, limit: int) -> list[Event]:
        with self._file.reading() as connection:
            found = connection.execute(
                QUERIES["partition_id"], (span.topic, span.partition)
            ).fetchone()
            if found is None:
                return []
            rows = connection.execute(
                QUERIES["read_events"],
                (position(found[0], span.first), position(found[0], span.last), limit),
            )
            return [event_from_row(span.topic, span.partition, row) for row in rows]

    def iterate(self, span: OffsetRange) -> Iterator[Event]:
        first = span.first
        while first <= span.last:
            page = self.read(OffsetRange(span.topic, span.partition, first, span.last), PAGE)
            yield from page
            if len(page) < PAGE:
                return
            first = page[-1].offset + 1

    def offsets_at(
        self, partitions: Sequence[TopicPartition], ts_ms: int
    ) -> dict[TopicPartition, int]:
        wanted = {"partitions": json.dumps(partitions), "ts": ts_ms}
        with self._file.reading() as connection:
            rows = connection.execute(QUERIES["offsets_at"], wanted)
            return {TopicPartition(topic, number): offset for topic, number, offset in rows}

    def view(self, group: str, topics: Sequence[str], *, now_ms: int, due_limit: int) -> GroupView:
        names = json.dumps(topics)
        asked = {"group": group, "now": now_ms, "due_limit": due_limit}
        with self._file.reading() as connection:
            version, tally = _account(connection, group)
            heads = connection.execute(QUERIES["partition_heads"], (group, names)).fetchall()
            open_ones = [
                delivery_from_row(row)
                for row in connection.execute(QUERIES["open_deliveries"], asked)
            ]
        return GroupView(
            version=version,
            heads=tuple(
                PartitionHead(TopicPartition(topic, partition), frontier, end, ts)
                for topic, partition, frontier, end, ts in heads
            ),
            in_flight=tuple(delivery for delivery in open_ones if delivery.in_flight),
            due=tuple(delivery for delivery in open_ones if not delivery.in_flight),
            tally=tally,
        )

    def progress(self, group: str, topics: Sequence[str]) -> GroupProgress:
        asked = {"group": group, "topics": json.dumps(topics)}
        with self._file.reading() as connection:
            _, tally = _account(connection, group)
            cursors = connection.execute(QUERIES["cursors"], asked).fetchall()
            sizes = Counter(dict(connection.execute(QUERIES["open_sizes"], (group,)).fetchall()))
        return GroupProgress(
            published=sum(end for _, _, _, end in cursors),
            tally=tally,
            reserved=sizes[State.RESERVED],
            running=sizes[State.RUNNING],
            waiting=sizes[State.WAITING],
            cursors={TopicPartition(topic, number): at for topic, number, at, _ in cursors},
        )

    def delivery(self, id: str) -> Delivery:
        with self._file.reading() as connection:
            row = connection.execute(QUERIES["delivery"], (id,)).fetchone()
        if row is None:
            raise UnknownDelivery(f"there is no delivery {id!r} in this store")
        return delivery_from_row(row)

    def commit(self, change: Change) -> None:
        with self._file.writing() as connection:
            connection.execute(QUERIES["ensure_group"], (change.group,))
            if change.frontiers:
                _move_frontiers(connection, change)
            for delivery in change.deliveries:
                _put_delivery(connection, delivery)
            for tally in (change.done, *(_bury(connection, each) for each in change.burials)):
                connection.execute(
                    QUERIES["add_to_account"],
                    (tally.processed, tally.filtered, tally.dead_lettered, change.group),
                )

    def dead_letters(self, group: str, *, limit: int, before: int | None) -> list[DeadLetter]:
        below = before if before is not None else (1 << 63) - 1
        with self._file.reading() as connection:
            rows = connection.execute(QUERIES["dead_letters"], (group, below, limit))
            return [dead_letter_from_row(row) for row in rows]

    def dead_letter_counts(self, group: str) -> dict[str, int]:
        with self._file.reading() as connection:
            return dict(connection.execute(QUERIES["dead_letter_counts"], (group,)).fetchall())

    def close(self) -> None:
        self._file.close()


class _End:
    """The end of a partition while events are being added to it."""

    __slots__ = ("id", "next_offset", "taken", "ts")

    def __init__(self, id: int, next_offset: int, ts: int) -> None:
        self.id = id
        self.next_offset = next_offset
        self.ts = ts
        self.taken = False

    def take(self) -> int:
        offset = self.next_offset
        self.next_offset += 1
        self.taken = True
        return offset


def _account(connection: sqlite3.Connection, group: str) -> tuple[int, Tally]:
    row = connection.execute(QUERIES["group_account"], (group,)).fetchone()
    return (row[0], Tally(*row[1:])) if row else (0, Tally())


def _move_frontiers(connection: sqlite3.Connection, change: Change) -> None:
    moved = connection.execute(
        QUERIES["advance_group"], (change.group, change.expected_version)
    ).rowcount
    if not moved:
        raise StaleState(
            f"group {change.group} has moved on from version {change.expected_version}"
        )
    connection.executemany(
        QUERIES["move_frontier"],
        [
            (change.group, offset, partition.topic, partition.partition)
            for partition, offset in change.frontiers.items()
        ],
    )


def _put_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    query = "insert_delivery" if delivery.version == 1 else "update_delivery"
    if not connection.execute(QUERIES[query], delivery_to_row(delivery)).rowcount:
        raise StaleState(f"delivery {delivery.id} is no longer at version {delivery.version - 1}")
    if delivery.version == 1:
        connection.executemany(
            QUERIES["open_range"],
            [
                (delivery.group, part.first, part.last, delivery.id, part.topic, part.partition)
                for part in delivery.ranges
            ],
        )
    if delivery.state is State.DONE:
        connection.execute(QUERIES["close_ranges"], (delivery.id,))


def _bury(connection: sqlite3.Connection, burial: Burial) -> Tally:
    """Copy the wanted events of a delivery to the dead letters, and count both kinds."""
    connection.create_function("wanted", 1, lambda text: burial.wanted.matches(json.loads(text)))
    story = {
        "group": burial.delivery.group,
        "delivery": burial.delivery.id,
        "fingerprint": burial.fingerprint,
        "died_ms": burial.died_ms,
        "unfiltered": not burial.wanted,
    }
    places = [
        {"topic": part.topic, "partition": part.partition, "first": part.first, "last": part.last}
        for part in burial.delivery.ranges
    ]
    dead = sum(connection.execute(QUERIES["bury"], {**story, **place}).rowcount for place in places)
    return Tally(filtered=burial.delivery.size - dead, dead_lettered=dead)
