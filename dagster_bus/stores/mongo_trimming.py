"""Deleting from a MongoDB store's log: its beginning, and events whose key came again.

Publishers change the counters all the time, and would conflict with a long transaction that does
so too. So the counter is told first, in a step of its own, what readers may no longer count on, and
the events go afterwards. If this process ends in between, the next step deletes what is left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pymongo import ASCENDING, ReplaceOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from dagster_bus.core.store import CompactionStep
from dagster_bus.core.topic import TopicPartition
from dagster_bus.stores.mongo_connection import MongoConnection
from dagster_bus.stores.mongo_documents import Document, partition_id, unknown_partition

TOMBSTONE = "null"


def trim(connection: MongoConnection, at: TopicPartition, first: int, limit: int) -> int:
    database = connection.database
    with connection.reading() as session:
        counter = _counter(database, session, at)
        first = max(min(first, counter["nextOffset"]), counter["firstOffset"])
        below = {**at._asdict(), "offset": {"$lt": first}}
        left = database["events"].find(below, {"offset": True}, session=session)
        for event in left.sort("offset", ASCENDING).skip(limit).limit(1):
            first = event["offset"]
        if first > counter["firstOffset"]:
            change = {"$max": {"firstOffset": first}}
            database["counters"].update_one({"_id": counter["_id"]}, change, session=session)
    return connection.transact(lambda session: _delete_below(database, session, at, first))


def _delete_below(
    database: Database[Document], session: ClientSession, at: TopicPartition, first: int
) -> int:
    below = {**at._asdict(), "offset": {"$lt": first}}
    database["latest_keys"].delete_many(below, session=session)
    return database["events"].delete_many(below, session=session).deleted_count


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
        last = min(before, counter["nextOffset"], first + limit) - 1
        if first <= last:
            change = {"$max": {"compactedTo": last}}
            database["counters"].update_one({"_id": counter["_id"]}, change, session=session)
    removed = 0
    if first <= last:
        ...
    return CompactionStep(...)
