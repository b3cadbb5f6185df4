"""The log of the embedded store: adding to its end, taking from its beginning, thinning it out.

Functions over an open transaction; the store begins and ends it.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate, repeat
from operator import itemgetter

from dagster_bus.core.dedup import Known, given_times, keys_to_sift, sift
from dagster_bus.core.event import (
    Batch,
    Event,
    Published,
    event_from_tuple,
    published_from_tuple,
)
from dagster_bus.core.store import CompactionStep
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import OffsetTrimmed
from dagster_bus.stores.common import unknown_partition
from dagster_bus.stores.sqlite.connection import load_queries
from dagster_bus.stores.sqlite.ends import Ends
from dagster_bus.stores.sqlite.inserting import INSERT, Columns, insert_events
from dagster_bus.stores.sqlite.rows import position

QUERIES = load_queries()


@dataclass(slots=True)
class Log:
    """A partition's row and true end. It is kept anew whenever events are deleted: what an append
    reads off the newest event must not be forgotten with it."""

    id: int
    first: int
    end: int
    last_ts: int
    appended_bytes: int
    trimmed_bytes: int
    compacted_to: int

    def keep(self, connection: sqlite3.Connection) -> None:
        id, *rest = astuple(self)
        connection.execute(QUERIES["keep_ends"], (*rest, id))


def find_log(connection: sqlite3.Connection, at: TopicPartition) -> Log:
    row = connection.execute(QUERIES["log"], at).fetchone()
    if row is None:
        raise unknown_partition(at)
    return Log(*row)


def page(connection: sqlite3.Connection, span: OffsetRange, limit: int, budget: int) -> list[Event]:
    """The first events of a range: so many, of so many bytes, and at least one if any."""
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


def fitting(connection: sqlite3.Connection, span: OffsetRange, most_bytes: int) -> tuple[int, int]:
    log = find_log(connection, TopicPartition(span.topic, span.partition))
    place = {"id": log.id, "first": span.first}
    (before,) = connection.execute(QUERIES["bytes_before"], place).fetchone() or (
        log.trimmed_bytes,
    )
    asked = {**place, "last": span.last, "most": most_bytes, "before": before}
    last, size = connection.execute(QUERIES["fitting"], asked).fetchone()
    return last, size


def most_urgent(connection: sqlite3.Connection, spans: Sequence[OffsetRange]) -> int | None:
    found = []
    for span in spans:
        log = find_log(connection, TopicPartition(span.topic, span.partition))
        asked = {"id": log.id, "first": span.first, "last": span.last}
        found += connection.execute(QUERIES["most_urgent"], asked).fetchone()
    return min((each for each in found if each is not None), default=None)


def offset_keeping(connection: sqlite3.Connection, at: TopicPartition, keep_bytes: int) -> int:
    find_log(connection, at)
    asked = {**at._asdict(), "keep": keep_bytes}
    offset: int = connection.execute(QUERIES["offset_keeping"], asked).fetchone()[0]
    return offset


def append(
    connection: sqlite3.Connection, ends: Ends, batches: Sequence[Batch], now_ms: int
) -> list[list[Published]]:
    """Place and insert all events of the batches that are no duplicates."""
    ends.look(connection, batches)
    if len(batches) == 1 and batches[0].length == 1 and batches[0].idempotency_keys[0] is None:
        return [[_append_single(connection, batches[0], ends, now_ms)]]
    columns: list[Columns] = []
    answers = []
    for batch in batches:
        keys = keys_to_sift(batch)
        if keys:
            published = _append_sifted(connection, batch, keys, ends, columns, now_ms)
        else:
            published = _place(batch, ends, columns, now_ms)
        answers.append(published)
    if columns:
        insert_events(connection, columns)
    return answers


def _append_single(
    connection: sqlite3.Connection, batch: Batch, ends: Ends, now_ms: int
) -> Published:
    """The same of a single event that cannot be a duplicate: the usual case, and the shortest."""
    partition = batch.partitions[0]
    end = ends.known[batch.topic, partition]
    offset = end.add(batch.sizes[0], batch.times[0] if batch.times else None, now_ms)
    place = (position(end.id, offset), end.last_ts, end.appended_bytes)
    connection.execute(INSERT, (*place, *map(itemgetter(0), batch[2:12])))
    return Published(batch.topic, partition, offset, batch.ids[0], end.last_ts)


def _append_sifted(
    connection: sqlite3.Connection,
    batch: Batch,
    keys: list[str],
    ends: Ends,
    columns: list[Columns],
    now_ms: int,
) -> list[Published]:
    """As `_place`, without the events whose idempotency key is known, and with a note of the rest.
    As many old notes are deleted as new ones are made, and some more."""
    asked = (batch.topic, json.dumps(keys))
    known = {
        key: Known(Published(batch.topic, *place), given_ms)
        for key, given_ms, *place in connection.execute(QUERIES["known_keys"], asked)
    }
    sifted = sift(batch, known, now_ms)
    fresh = _place(sifted.fresh, ends, columns, now_ms) if sifted.fresh.length else []
    notes = [
        (batch.topic, key, given_ms, now_ms + batch.dedup_ms, at.partition, at.offset, at.id, at.ts)
        for key, given_ms, at in zip(
            sifted.fresh.idempotency_keys, given_times(sifted.fresh, now_ms), fresh, strict=True
        )
        if key is not None
    ]
    connection.executemany(QUERIES["note_key"], notes)
    connection.execute(QUERIES["forget_keys"], (now_ms, 2 * len(keys) + 10))
    return sifted.published(fresh)


def _place(batch: Batch, ends: Ends, columns: list[Columns], now_ms: int) -> list[Published]:
    """Give each event its offset and time, and add its row to those to be inserted."""
    partition = batch.partitions[0]
    together = batch.times is None and batch.partitions.count(partition) == batch.length
    if together and batch.length > 1:
        end = ends.known[batch.topic, partition]
        offsets: Sequence[int] = range(end.next_offset, end.next_offset + batch.length)
        first = position(end.id, end.next_offset)
        positions: Sequence[int] = range(first, first + batch.length)
        end.last_ts = max(end.last_ts, now_ms)
        times: Sequence[int] = [end.last_ts] * batch.length
        totals = list(accumulate(batch.sizes, initial=end.appended_bytes))[1:]
        end.next_offset += batch.length
        end.appended_bytes = totals[-1]
    else:
        offsets, positions, times, totals = _place_one_by_one(batch, ends, now_ms)
    columns.append((positions, times, totals, *batch[2:12]))
    places = zip(repeat(batch.topic), batch.partitions, offsets, batch.ids, times, repeat(False))
    return list(map(published_from_tuple, places))


def _place_one_by_one(
    batch: Batch, ends: Ends, now_ms: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    offsets, positions, times, totals = [], [], [], []
    topic = batch.topic
    given = batch.times or repeat(None)
    for partition, size, time in zip(batch.partitions, batch.sizes, given, strict=False):
        end = ends.known[topic, partition]
        offset = end.add(size, time, now_ms)
        offsets.append(offset)
        positions.append(position(end.id, offset))
        times.append(end.last_ts)
        totals.append(end.appended_bytes)
    return offsets, positions, times, totals


def trim(connection: sqlite3.Connection, at: TopicPartition, first: int, limit: int) -> int:
    log = find_log(connection, at)
    first = min(first, log.end, _first_held(connection, log))
    if first <= log.first:
        return 0
    (step_end,) = connection.execute(
        QUERIES["step_end"], {"id": log.id, "first": first, "limit": limit}
    ).fetchone() or (first,)
    asked = {"id": log.id, "first": step_end}
    (log.trimmed_bytes,) = connection.execute(QUERIES["bytes_before"], asked).fetchone() or (
        log.trimmed_bytes,
    )
    connection.execute(QUERIES["forget_trimmed_keys"], asked)
    removed = connection.execute(QUERIES["trim"], asked).rowcount
    log.first = step_end
    log.keep(connection)
    return removed


def _first_held(connection: sqlite3.Connection, log: Log) -> int:
    """The first event that a delivery still needs, or the log's end."""
    found: int | None = connection.execute(QUERIES["first_held"], (log.id,)).fetchone()[0]
    return log.end if found is None else found


def compact(
    connection: sqlite3.Connection,
    at: TopicPartition,
    before: int,
    tombstones_before_ms: int,
    limit: int,
) -> CompactionStep:
    log = find_log(connection, at)
    first = max(log.compacted_to + 1, log.first)
    last = min(before, log.end, _first_held(connection, log), first + limit) - 1
    removed = 0
    if first <= last:
        asked = {"id": log.id, "first": first, "last": last}
        removed += connection.execute(QUERIES["delete_superseded"], asked).rowcount
        connection.execute(QUERIES["note_latest_keys"], asked)
        log.compacted_to = last
    removed += _delete_tombstones(connection, log, tombstones_before_ms, limit)
    log.keep(connection)
    return CompactionStep(log.compacted_to, removed)


def _delete_tombstones(connection: sqlite3.Connection, log: Log, before_ms: int, limit: int) -> int:
    asked = {"id": log.id, "before": before_ms, "limit": limit}
    old = connection.execute(QUERIES["old_tombstones"], asked).fetchall()
    connection.executemany(QUERIES["forget_latest_key"], [(log.id, key) for key, _ in old])
    deleted = connection.executemany(
        QUERIES["delete_event"], [(log.id, offset) for _, offset in old]
    )
    return max(deleted.rowcount, 0)
