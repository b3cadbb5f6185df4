"""The log of the embedded store: adding to its end, taking from its beginning, thinning it out.

Functions over an open transaction; the store begins and ends it.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate, chain, islice, repeat
from typing import Any

from dagster_bus.core.dedup import Known, given_times, keys_to_sift, sift
from dagster_bus.core.event import Batch, Published, published_from_tuple
from dagster_bus.core.store import CompactionStep
from dagster_bus.core.topic import TopicPartition
from dagster_bus.stores.common import unknown_partition
from dagster_bus.stores.sqlite_connection import load_queries
from dagster_bus.stores.sqlite_rows import position

QUERIES = load_queries()

COLUMNS = 13
ROWS_AT_ONCE = 100
"""One statement with many rows is faster than many executions of one with a single row."""

_INSERT = QUERIES["insert_event"]
_INSERT_MANY = _INSERT + f", ({', '.join('?' * COLUMNS)})" * (ROWS_AT_ONCE - 1)

Rows = Iterable[tuple[Any, ...]]


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


def append(
    connection: sqlite3.Connection, batches: Sequence[Batch], now_ms: int
) -> list[list[Published]]:
    """Place and insert all events of the batches that are no duplicates."""
    ends = _find_ends(connection, batches)
    rows: list[Rows] = []
    answers = []
    for batch in batches:
        keys = keys_to_sift(batch)
        if keys:
            published = _append_sifted(connection, batch, keys, ends, rows, now_ms)
        else:
            published = _place(batch, ends, rows, now_ms)
        answers.append(published)
    _insert(connection, chain.from_iterable(rows))
    return answers


class _End:
    """The end of a partition while events are being added to it."""

    __slots__ = ("appended_bytes", "id", "last_ts", "next_offset")

    def __init__(self, id: int, next_offset: int, last_ts: int, appended_bytes: int) -> None:
        self.id = id
        self.next_offset = next_offset
        self.last_ts = last_ts
        self.appended_bytes = appended_bytes


Ends = dict[tuple[str, int], _End]


def _find_ends(connection: sqlite3.Connection, batches: Sequence[Batch]) -> Ends:
    wanted = {(batch.topic, number) for batch in batches for number in set(batch.partitions)}
    if len(wanted) == 1:  # the usual case of a single event, in half the time
        rows = connection.execute(QUERIES["end"], *wanted)
    else:
        rows = connection.execute(QUERIES["ends"], (json.dumps(list(wanted)),))
    ends = {(topic, partition): _End(*end) for topic, partition, *end in rows}
    for at in wanted - ends.keys():
        raise unknown_partition(TopicPartition(*at))
    return ends


def _append_sifted(
    connection: sqlite3.Connection,
    batch: Batch,
    keys: list[str],
    ends: Ends,
    rows: list[Rows],
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
    fresh = _place(sifted.fresh, ends, rows, now_ms) if sifted.fresh.length else []
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


def _place(batch: Batch, ends: Ends, rows: list[Rows], now_ms: int) -> list[Published]:
    """Give each event its offset and time, and add its row to those to be inserted."""
    partition = batch.partitions[0]
    if batch.times is None and batch.partitions.count(partition) == batch.length:
        end = ends[batch.topic, partition]
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
    rows.append(zip(positions, times, totals, *batch[2:12], strict=True))
    places = zip(repeat(batch.topic), batch.partitions, offsets, batch.ids, times, repeat(False))
    return list(map(published_from_tuple, places))


def _place_one_by_one(
    batch: Batch, ends: Ends, now_ms: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    offsets, positions, times, totals = [], [], [], []
    topic = batch.topic
    given = batch.times or repeat(None)
    for partition, size, time in zip(batch.partitions, batch.sizes, given, strict=False):
        end = ends[topic, partition]
        offset = end.next_offset
        end.next_offset = offset + 1
        end.appended_bytes += size
        end.last_ts = max(end.last_ts, now_ms if time is None else min(time, now_ms))
        offsets.append(offset)
        positions.append(position(end.id, offset))
        times.append(end.last_ts)
        totals.append(end.appended_bytes)
    return offsets, positions, times, totals


def _insert(connection: sqlite3.Connection, rows: Rows) -> None:
    rows = iter(rows)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        if len(some) == ROWS_AT_ONCE:
            connection.execute(_INSERT_MANY, list(chain.from_iterable(some)))
        else:
            connection.executemany(_INSERT, some)


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
