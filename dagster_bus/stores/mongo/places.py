"""Places in a MongoDB store's log: of a time, and of so many bytes."""

from collections.abc import Callable, Sequence

from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.stores.common import unknown_partition
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import Document, partition_id, partition_of


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
        counter = _counter(connection.database, session, at)
        spare = counter["appendedBytes"] - keep_bytes
        return _halve(connection.database, session, counter, lambda e: bool(e["bytes"] >= spare))


def fitting(connection: MongoConnection, span: OffsetRange, most_bytes: int) -> tuple[int, int]:
    """What compaction took out of a range still counts: an event is then taken for larger than it
    is, and never for smaller."""
    database = connection.database
    with connection.snapshot() as session:
        counter = _counter(database, session, TopicPartition(span.topic, span.partition))
        begin = _next_event(database, session, counter, span.first)
        if begin["offset"] > span.last:
            return span.last, 0
        most = begin["bytes"] + most_bytes
        end = _next_event(database, session, counter, span.last + 1)
        if end["bytes"] > most:
            inside = {**counter, "firstOffset": begin["offset"], "nextOffset": span.last + 1}
            after = _halve(database, session, inside, lambda event: bool(event["bytes"] > most))
            end = _next_event(database, session, counter, after - 1)
            return end["offset"] - 1, end["bytes"] - begin["bytes"]
        return span.last, end["bytes"] - begin["bytes"]


def most_urgent(connection: MongoConnection, spans: Sequence[OffsetRange]) -> int | None:
    if not spans:
        return None
    inside = [
        {
            "topic": span.topic,
            "partition": span.partition,
            "offset": {"$gte": span.first, "$lte": span.last},
        }
        for span in spans
    ]
    steps: list[Document] = [
        {"$match": {"$or": inside}},
        {"$group": {"_id": None, "most": {"$min": "$priority"}}},
    ]
    with connection.reading() as session:
        found = list(connection.database["events"].aggregate(steps, session=session))
    return int(found[0]["most"]) if found else None


def _counter(database: Database[Document], session: ClientSession, at: TopicPartition) -> Document:
    counter = database["counters"].find_one({"_id": partition_id(at)}, session=session)
    if counter is None:
        raise unknown_partition(at)
    return counter


def _next_event(
    database: Database[Document], session: ClientSession, counter: Document, offset: int
) -> Document:
    """Offset and bytes of the first event from an offset on; those of the end if there is none."""
    event = database["events"].find_one(
        {
            "topic": counter["topic"],
            "partition": counter["partition"],
            "offset": {"$gte": offset},
        },
        {"offset": True, "bytes": True},
        sort=[("offset", ASCENDING)],
        session=session,
    )
    return event or {"offset": counter["nextOffset"], "bytes": counter["appendedBytes"]}


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
