"""Deleting from a MongoDB store's log: its beginning, and events whose key came again.

Publishers change the counters all the time, and would conflict with a long transaction that does
so too. So the counter is told first, in a step of its own, what readers may no longer count on, and
the events go afterwards. If this process ends in between, the next step deletes what is left.

A group that takes events writes down where it stands in their partition. Who moves the partition's
beginning changes that too, so that of both at the same time one begins anew, and sees the other.
"""

from collections.abc import Iterable

from pymongo import ASCENDING, ReplaceOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.store import CompactionStep
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.stores.common import unknown_partition
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import Document, partition_id

TOMBSTONE = "null"


def trim(connection: MongoConnection, at: TopicPartition, first: int, limit: int) -> int:
    database = connection.database
    with connection.reading() as session:
        counter = _counter(database, session, at)
        held = _first_held(database, session, counter)
        first = max(min(first, held), counter["firstOffset"])
        below = {**at._asdict(), "offset": {"$lt": first}}
        found = database["events"].find(below, {"_id": False, "offset": True}, session=session)
        offsets = [event["offset"] for event in found.sort("offset").limit(limit + 1)]
        if len(offsets) > limit:
            first = offsets[limit]
    if first > counter["firstOffset"]:
        first = connection.transact(lambda session: _begin_with(database, session, at, first))
    if not offsets:
        return 0
    return connection.transact(lambda session: _delete_below(database, session, at, first))


def compact(
    connection: MongoConnection,
    at: TopicPartition,
    before: int,
    tombstones_before_ms: int,
    limit: int,
) -> CompactionStep:
    database = connection.database
    with connection.reading() as session:
        counter = _counter(database, session, at)
        done = _done(database, session, at)
        first = max(done + 1, counter["firstOffset"])
        held = _first_held(database, session, counter)
        last = max(min(before, held, first + limit) - 1, done)
        if last > done:
            _tell(database, session, at, "compactedTo", last)

    def step(session: ClientSession) -> int:
        removed = 0
        if last > done and _done(database, session, at) == done:
            span = OffsetRange(*at, first, last)
            removed += _delete_superseded(database, session, span)
            mark = {"$set": {"compactedTo": last}}
            of_partition = {"_id": partition_id(at)}
            database["compactions"].update_one(of_partition, mark, upsert=True, session=session)
        return removed + _delete_tombstones(database, session, at, tombstones_before_ms, limit)

    return CompactionStep(compacted_to=last, removed=connection.transact(step))


def _begin_with(
    database: Database[Document], session: ClientSession, at: TopicPartition, first: int
) -> int:
    """Move the beginning of a partition, but not beyond an event that a group has taken by now;
    returns where it is."""
    held = database["open_ranges"].find_one(at._asdict(), sort=[("first", 1)], session=session)
    if held:
        first = min(first, held["first"])
    _tell(database, session, at, "firstOffset", first)
    moved = {"$set": {"seenFirst": first}}
    database["group_offsets"].update_many(at._asdict(), moved, session=session)
    database["compactions"].update_one(
        {"_id": partition_id(at)}, moved, upsert=True, session=session
    )
    return first


def _counter(database: Database[Document], session: ClientSession, at: TopicPartition) -> Document:
    counter = database["counters"].find_one({"_id": partition_id(at)}, session=session)
    if counter is None:
        raise unknown_partition(at)
    return counter


def _first_held(database: Database[Document], session: ClientSession, counter: Document) -> int:
    """The first event that a delivery of any group still needs, or the log's end."""
    of_partition = {"topic": counter["topic"], "partition": counter["partition"]}
    found = database["open_ranges"].find_one(of_partition, sort=[("first", 1)], session=session)
    end: int = counter["nextOffset"]
    return min(end, found["first"]) if found else end


def _tell(
    database: Database[Document],
    session: ClientSession,
    at: TopicPartition,
    field: str,
    offset: int,
) -> None:
    """Move a mark of a partition's counter ahead."""
    change = {"$max": {field: offset}}
    database["counters"].update_one({"_id": partition_id(at)}, change, session=session)


def _done(database: Database[Document], session: ClientSession, at: TopicPartition) -> int:
    found = database["compactions"].find_one({"_id": partition_id(at)}, session=session)
    return found.get("compactedTo", 0) if found else 0


def _delete_below(
    database: Database[Document], session: ClientSession, at: TopicPartition, first: int
) -> int:
    below = {**at._asdict(), "offset": {"$lt": first}}
    database["latest_keys"].delete_many(below, session=session)
    return database["events"].delete_many(below, session=session).deleted_count


def _delete_superseded(
    database: Database[Document], session: ClientSession, span: OffsetRange
) -> int:
    """Delete events whose key comes again: later in the range, or in it at all if they were looked
    at before. Note the newest of each key."""
    at = TopicPartition(span.topic, span.partition)
    newest: dict[str, Document] = {}
    superseded = []
    for event in _keyed_events(database, session, span):
        earlier = newest.get(event["key"])
        if earlier is not None:
            superseded.append(earlier["offset"])
        newest[event["key"]] = event
    if not newest:
        return 0
    notes = database["latest_keys"]
    known = {"_id": {"$in": [_note_id(at, key) for key in newest]}}
    superseded += [note["offset"] for note in notes.find(known, session=session)]
    fresh = [_note(at, event) for event in newest.values()]
    notes.bulk_write(
        [ReplaceOne({"_id": note["_id"]}, note, upsert=True) for note in fresh], session=session
    )
    return _delete_events(database, session, at, superseded)


def _keyed_events(
    database: Database[Document], session: ClientSession, span: OffsetRange
) -> Iterable[Document]:
    """Offset, key and time of the events of a range that have a key, and whether they delete it."""
    return database["events"].aggregate(
        [
            {
                "$match": {
                    "topic": span.topic,
                    "partition": span.partition,
                    "offset": {"$gte": span.first, "$lte": span.last},
                    "key": {"$exists": True},
                }
            },
            {"$sort": {"offset": ASCENDING}},
            {
                "$project": {
                    "offset": True,
                    "key": True,
                    "ts": True,
                    "deletes": {"$eq": ["$payload", TOMBSTONE]},
                }
            },
        ],
        session=session,
    )


def _delete_tombstones(
    database: Database[Document],
    session: ClientSession,
    at: TopicPartition,
    before_ms: int,
    limit: int,
) -> int:
    notes = database["latest_keys"]
    old = {**at._asdict(), "tombstoneTs": {"$lt": before_ms}}
    found = list(notes.find(old, session=session).sort("tombstoneTs").limit(limit))
    if not found:
        return 0
    notes.delete_many({"_id": {"$in": [note["_id"] for note in found]}}, session=session)
    return _delete_events(database, session, at, [note["offset"] for note in found])


def _delete_events(
    database: Database[Document],
    session: ClientSession,
    at: TopicPartition,
    offsets: list[int],
) -> int:
    if not offsets:
        return 0
    chosen = {**at._asdict(), "offset": {"$in": offsets}}
    return database["events"].delete_many(chosen, session=session).deleted_count


def _note_id(at: TopicPartition, key: str) -> str:
    return f"{partition_id(at)}:{key}"


def _note(at: TopicPartition, event: Document) -> Document:
    note = {"_id": _note_id(at, event["key"]), **at._asdict(), "offset": event["offset"]}
    if event["deletes"]:
        note["tombstoneTs"] = event["ts"]
    return note
