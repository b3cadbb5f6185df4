"""Adding to the ends of a MongoDB store's partitions.

The counter of a partition and the events that it gives offsets to are written in one transaction,
the counter first: so publishers of a partition come one after the other, and no reader sees an
event before its predecessors. Functions over an open transaction; the store begins and ends it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, repeat
from typing import Any

from pymongo import ReplaceOne, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.dedup import Known, given_times, keys_to_sift, sift
from dagster_bus.core.event import Batch, Published, published_from_tuple
from dagster_bus.core.topic import TopicPartition
from dagster_bus.stores.common import unknown_partition
from dagster_bus.stores.mongo.documents import (
    Document,
    events_to_documents,
    partition_id,
    published_from_note,
)

Columns = tuple[Sequence[int], Sequence[int], Sequence[int]]


@dataclass(slots=True)
class _Growth:
    """What an append adds to a partition."""

    events: int = 0
    bytes: int = 0
    latest_ms: int = 0

    def as_update(self) -> Document:
        return {
            "$inc": {"nextOffset": self.events, "appendedBytes": self.bytes},
            "$max": {"lastTs": self.latest_ms},
        }


@dataclass(slots=True)
class _End:
    """The end of a partition while events are being added to it."""

    next_offset: int
    last_ts: int
    appended_bytes: int


def append(
    database: Database[Document], session: ClientSession, batches: Sequence[Batch], now_ms: int
) -> list[list[Published]]:
    """Place and insert all events of the batches that are no duplicates."""
    documents: list[Document] = []
    answers = {}
    for batch in _join(batches):
        keys = keys_to_sift(batch)
        if keys:
            published = _add_sifted(database, session, batch, keys, now_ms, documents)
        else:
            published = _add(database, session, batch, now_ms, documents)
        answers[batch.topic] = iter(published)
    if documents:
        database["events"].insert_many(documents, session=session)
    return [list(islice(answers[batch.topic], batch.length)) for batch in batches]


def forget_keys(database: Database[Document], expired_ms: int, limit: int) -> None:
    """Delete the notes of some keys whose window is over, the oldest first."""
    notes = database["idempotency"]
    expired = {"expiresMs": {"$lte": expired_ms}}
    found = notes.find(expired, {"_id": True}).sort("expiresMs").limit(limit)
    notes.delete_many({"_id": {"$in": [note["_id"] for note in found]}, **expired})


def _join(batches: Sequence[Batch]) -> list[Batch]:
    """All batches of a topic as one: repeated keys and ends are then looked for once."""
    by_topic: dict[str, list[Batch]] = {}
    for batch in batches:
        by_topic.setdefault(batch.topic, []).append(batch)
    return [each[0] if len(each) == 1 else _concatenate(each) for each in by_topic.values()]


def _concatenate(batches: Sequence[Batch]) -> Batch:
    columns: dict[str, Any] = {
        name: list(chain.from_iterable(getattr(batch, name) for batch in batches))
        for name in Batch._fields
        if name not in ("topic", "times", "dedup_ms")
    }
    if any(batch.times is not None for batch in batches):
        times = (batch.times or [None] * batch.length for batch in batches)
        columns["times"] = list(chain.from_iterable(times))
    return batches[0]._replace(**columns)


def _add_sifted(
    database: Database[Document],
    session: ClientSession,
    batch: Batch,
    keys: Sequence[str],
    now_ms: int,
    documents: list[Document],
) -> list[Published]:
    """As `_add`, without the events whose idempotency key is known, and with a note of the rest."""
    notes = database["idempotency"]
    known = notes.find(
        {
            "_id": {"$in": [_note_id(batch.topic, key) for key in keys]},
        },
        session=session,
    )
    places = {
        note["key"]: Known(published_from_note(batch.topic, note), note["givenMs"])
        for note in known
    }
    sifted = sift(batch, places, now_ms)
    fresh = sifted.fresh
    published = _add(database, session, fresh, now_ms, documents) if fresh.length else []
    given = [
        _note(key, at, given_ms, now_ms + batch.dedup_ms)
        for key, at, given_ms in zip(
            fresh.idempotency_keys, published, given_times(fresh, now_ms), strict=True
        )
        if key is not None
    ]
    if given:
        notes.bulk_write(
            [ReplaceOne({"_id": note["_id"]}, note, upsert=True) for note in given],
            session=session,
        )
    return sifted.published(published)


def _note_id(topic: str, key: str) -> str:
    return f"{topic}:{key}"


def _note(key: str, at: Published, given_ms: int, expires_ms: int) -> Document:
    return {
        "_id": _note_id(at.topic, key),
        "key": key,
        "partition": at.partition,
        "offset": at.offset,
        "id": at.id,
        "ts": at.ts,
        "givenMs": given_ms,
        "expiresMs": expires_ms,
    }


def _add(
    database: Database[Document],
    session: ClientSession,
    batch: Batch,
    now_ms: int,
    documents: list[Document],
) -> list[Published]:
    """Give each event its place, and add its document to those to be inserted."""
    ends = _advance(database, session, batch, now_ms)
    offsets, times, starts = _place(batch, ends, now_ms)
    documents += events_to_documents(batch, offsets, times, starts)
    places = zip(
        repeat(batch.topic), batch.partitions, offsets, batch.ids, times, repeat(False)
    )  # fmt: skip
    return list(map(published_from_tuple, places))


def _advance(
    database: Database[Document], session: ClientSession, batch: Batch, now_ms: int
) -> dict[int, _End]:
    """Move the ends of a batch's partitions, and return where they were."""
    steps = {
        partition: (
            {"_id": partition_id(TopicPartition(batch.topic, partition))},
            growth.as_update(),
        )
        for partition, growth in sorted(_growths(batch, now_ms).items())
    }
    counters = database["counters"]
    if len(steps) == 1:
        ((where, change),) = steps.values()
        found = [counters.find_one_and_update(where, change, session=session)]
    else:  # who changes a counter between the two makes the transaction begin anew
        wanted = [where["_id"] for where, _ in steps.values()]
        found = list(counters.find({"_id": {"$in": wanted}}, session=session))
        counters.bulk_write([UpdateOne(*step) for step in steps.values()], session=session)
    ends = {
        counter["partition"]: _End(
            counter["nextOffset"], counter["lastTs"], counter["appendedBytes"]
        )
        for counter in found
        if counter is not None
    }
    for partition in steps.keys() - ends.keys():
        raise unknown_partition(TopicPartition(batch.topic, partition))
    return ends


def _growths(batch: Batch, now_ms: int) -> dict[int, _Growth]:
    if _is_simple(batch):
        return {batch.partitions[0]: _Growth(batch.length, sum(batch.sizes), now_ms)}
    growths = {partition: _Growth() for partition in set(batch.partitions)}
    for partition, size, ms in _events(batch, now_ms):
        growth = growths[partition]
        growth.events += 1
        growth.bytes += size
        growth.latest_ms = max(growth.latest_ms, ms)
    return growths


def _place(batch: Batch, ends: dict[int, _End], now_ms: int) -> Columns:
    """Offset and time of each event, and the bytes before it."""
    if _is_simple(batch):
        end = ends[batch.partitions[0]]
        return (
            range(end.next_offset, end.next_offset + batch.length),
            [max(end.last_ts, now_ms)] * batch.length,
            list(accumulate(batch.sizes, initial=end.appended_bytes))[:-1],
        )
    offsets, times, starts = [], [], []
    for partition, size, ms in _events(batch, now_ms):
        end = ends[partition]
        end.last_ts = max(end.last_ts, ms)
        offsets.append(end.next_offset)
        times.append(end.last_ts)
        starts.append(end.appended_bytes)
        end.next_offset += 1
        end.appended_bytes += size
    return offsets, times, starts


def _is_simple(batch: Batch) -> bool:
    """New events for a single partition: all of them stand side by side, at one time."""
    return batch.times is None and batch.partitions.count(batch.partitions[0]) == batch.length


def _events(batch: Batch, now_ms: int) -> Iterable[tuple[int, int, int]]:
    """Partition, size and time of each event; the time as its publisher and the clock say."""
    given = repeat(None) if batch.times is None else batch.times
    times = (now_ms if ms is None else min(ms, now_ms) for ms in given)
    return zip(batch.partitions, batch.sizes, times, strict=False)
