"""Reading a MongoDB store's log: events in order, and the places of times and sizes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.cursor import Cursor
from pymongo.database import Database

from dagster_bus.core.event import Event
from dagster_bus.core.store import LEAST_EVENTS, PAGE_BYTES, PAGE_EVENTS
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import OffsetTrimmed, StoreUnavailable
from dagster_bus.stores.common import unknown_partition
from dagster_bus.stores.mongo_connection import MongoConnection
from dagster_bus.stores.mongo_documents import (
    Document,
    event_from_document,
    partition_id,
    partition_of,
)

Page = list[Document]


def read(connection: MongoConnection, span: OffsetRange, limit: int) -> list[Event]:
    return list(islice(iterate(connection, span, limit), limit))


def iterate(
    connection: MongoConnection, span: OffsetRange, limit: int = 0, shared_by: int = 1
) -> Iterator[Event]:
    """The events of a range, in order. If the server is lost on the way, reading goes on with the
    next one."""
    expected = span.first
    while True:
        begun = expected
        try:
            for page in pages(connection, replace(span, first=begun), limit, shared_by):
                yield from map(event_from_document, page)
                expected = page[-1]["offset"] + 1
        except StoreUnavailable:
            if expected == begun:
                raise
        else:
            return


def pages(
    connection: MongoConnection, span: OffsetRange, limit: int = 0, shared_by: int = 1
) -> Iterator[Page]:
    """The documents of a range, some at a time. Where some are missing it is asked why: compaction
    takes single ones, and that is well; if they were trimmed away, the reader is told."""
    if span.first > span.last:
        return
    expected = span.first
    with connection.session() as session:
        most = max(PAGE_EVENTS // shared_by, LEAST_EVENTS)
        cursor = _find(connection.database, session, span, limit, most)
        while page := _page(connection, cursor, most, PAGE_BYTES // shared_by):
            first, last = page[0]["offset"], page[-1]["offset"]
            if first > expected or last - first + 1 > len(page):
                _require_available(connection, session, replace(span, first=expected))
            yield page
            expected = last + 1
        if expected <= span.last:
            _require_available(connection, session, replace(span, first=expected))


def _find(
    database: Database[Document],
    session: ClientSession,
    span: OffsetRange,
    limit: int,
    batch_size: int,
) -> Cursor[Document]:
    return database["events"].find(
        {
            "topic": span.topic,
            "partition": span.partition,
            "offset": {"$gte": span.first, "$lte": span.last},
        },
        sort=[("offset", ASCENDING)],
        batch_size=batch_size,
        limit=limit,
        session=session,
    )


def _page(connection: MongoConnection, cursor: Cursor[Document], most: int, budget: int) -> Page:
    """The next documents: so many, of so many bytes, and at least one if any."""
    page: Page = []
    with connection.bounded():
        for document in cursor:
            page.append(document)
            if len(page) == most or document["bytes"] - page[0]["bytes"] > budget:
                break
    return page


def _require_available(
    connection: MongoConnection, session: ClientSession, span: OffsetRange
) -> None:
    at = TopicPartition(span.topic, span.partition)
    with connection.bounded():
        counter = connection.database["counters"].find_one(
            {"_id": partition_id(at)}, session=session
        )
    if counter is not None and span.first < counter["firstOffset"]:
        raise OffsetTrimmed(*at, span.first, counter["firstOffset"])


def offsets_at(
    connection: MongoConnection, partitions: Sequence[TopicPartition], ts_ms: int
) -> dict[TopicPartition, int]:
    with connection.snapshot() as session:
        found = connection.database["counters"].aggregate(
            _first_events_at(partitions, ts_ms), session=session
        )
        return {
            partition_of(counter): _offset_at(connection.database, session, counter, ts_ms)
            for counter in found
        }


def _first_events_at(partitions: Sequence[TopicPartition], ts_ms: int) -> list[Document]:
    """For each counter an event of the first time that is not before the given one, and the event
    before that."""
    of_partition = [{"$eq": ["$topic", "$$topic"]}, {"$eq": ["$partition", "$$partition"]}]
    earlier = {"$lt": ["$offset", "$$offset"]}
    names = {"topic": "$topic", "partition": "$partition"}
    return [
        {"$match": {"_id": {"$in": [partition_id(at) for at in partitions]}}},
        {
            "$lookup": {
                "from": "events",
                "let": names,
                "pipeline": [
                    {"$match": {"ts": {"$gte": ts_ms}, "$expr": {"$and": of_partition}}},
                    {"$sort": {"ts": 1}},
                    {"$limit": 1},
                    {"$project": {"offset": 1}},
                ],
                "as": "found",
            }
        },
        {"$set": {"offset": {"$ifNull": [{"$first": "$found.offset"}, "$nextOffset"]}}},
        {
            "$lookup": {
                "from": "events",
                "let": {**names, "offset": "$offset"},
                "pipeline": [
                    {"$match": {"$expr": {"$and": [*of_partition, earlier]}}},
                    {"$sort": {"offset": -1}},
                    {"$limit": 1},
                    {"$project": {"ts": 1}},
                ],
                "as": "before",
            }
        },
    ]


def _offset_at(
    database: Database[Document], session: ClientSession, counter: Document, ts_ms: int
) -> int:
    """Events of one time are in the order of their offsets in the index of a server that inserted
    them, and may not be in that of a server that copied them: then the first is looked for."""
    offset: int = max(counter["offset"], counter["firstOffset"])
    if all(event["ts"] < ts_ms for event in counter["before"]):
        return offset
    before = {**counter, "nextOffset": offset}
    return _halve(database, session, before, lambda event: bool(event["ts"] >= ts_ms))


def offset_keeping(connection: MongoConnection, at: TopicPartition, keep_bytes: int) -> int:
    with connection.snapshot() as session:
        counter = connection.database["counters"].find_one(
            {"_id": partition_id(at)}, session=session
        )
        if counter is None:
            raise unknown_partition(at)
        spare = counter["appendedBytes"] - keep_bytes
        return _halve(connection.database, session, counter, lambda e: bool(e["bytes"] >= spare))


def _halve(
    database: Database[Document],
    session: ClientSession,
    counter: Document,
    is_after: Callable[[Document], bool],
) -> int:
    """The lowest offset of a partition from which on all events are after a place, in some forty
    look-ups at most. Times and bytes grow along a partition."""
    low, high = counter["firstOffset"], counter["nextOffset"]
    while low < high:
        middle = (low + high) // 2
        event = database["events"].find_one(
            {
                "topic": counter["topic"],
                "partition": counter["partition"],
                "offset": {"$gte": middle, "$lt": high},
            },
            {"offset": True, "ts": True, "bytes": True},
            sort=[("offset", ASCENDING)],
            session=session,
        )
        if event is None or is_after(event):
            high = middle
        else:
            low = event["offset"] + 1
    return int(low)
