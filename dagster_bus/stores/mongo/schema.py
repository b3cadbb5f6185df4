"""What a MongoDB store keeps, its indexes and its version.

events          the log, one document for each event: topic, partition, offset, ts, id, key, source,
                headers (its attributes), schema_version, priority, idempotency_key, ttl_s, payload
                (JSON text, to the letter), payload_sha256, and bytes, the sizes of all events that
                its partition got before it; what an event does not have is left out
counters        one for each partition, _id "topic:partition": nextOffset, lastTs and appendedBytes
                are changed by the transaction that inserts the events; events below firstOffset
                were trimmed away; compaction may have deleted some up to compactedTo
topic_configs   _id topic: its number of partitions, and its configuration as JSON text
idempotency     _id "topic:key": where the event stands that had the key first, and when it was
                given (givenMs); kept until expiresMs
compactions     _id "topic:partition": compactedTo, up to where compaction has done its work; the
                number of groups that have come, and the first offset that trimming has left
                (seenFirst): who writes one of them conflicts with who writes another
latest_keys     of compacted partitions, _id "topic:partition:key": the offset of the newest event
                with the key, and its tombstoneTs if that says that the key was deleted
groups          _id group: its version; how its events ended; and of its circuit breaker the
                failures in a row, and pausedUntilMs; what is missing is 0
group_offsets   _id "topic:partition:group": frontier, the first offset that the group has never
                reserved; start, where it began; lastCommitted, the offset before its oldest
                unsettled event; updatedTs; owner, the worker that took the last new events, if
                it stays; seenFirst, as in compactions
deliveries      every delivery, open or done (of live groups only those that are open, or that
                dead letters tell of), with the errors of all its attempts; it may be
                exhausted (only to be looked at, isolated or given up), redriven (its events are
                letters that were sent back) and doubtful (its last holder left without a word);
                behind are those of its ranges that only wait for the others, looks how many of
                its holders have looked in vain for events that fail alone
open_ranges     the ranges of deliveries that are not done, nor redriven
dead_letters    copies of the events that a group gave up on; ids ascend; their state is "dead" or
                "redriven"; patched is the payload that one was sent back with, if another one
letter_counts   _id "group:fingerprint": how many letters of a group are dead of one kind of error
meta            _id "schema": the version of all this; _id "dead_letters": the last id given
"""

from pymongo import ASCENDING, IndexModel
from pymongo.database import Database
from pymongo.errors import OperationFailure

from dagster_bus.errors import StoreNotFound, StoreUnusable
from dagster_bus.stores.mongo.documents import Document

VERSION = 2

NAMESPACE_EXISTS = 48


def _index(*fields: str, unique: bool = False, only_with: str | None = None) -> IndexModel:
    keys = [(field, ASCENDING) for field in fields]
    if only_with is None:
        return IndexModel(keys, unique=unique)
    return IndexModel(keys, partialFilterExpression={only_with: {"$exists": True}})


INDEXES = {
    "events": [
        _index("topic", "partition", "offset", unique=True),
        _index("topic", "partition", "ts"),
    ],
    "counters": [_index("topic", "partition", unique=True)],
    "topic_configs": [],
    "idempotency": [_index("expiresMs")],
    "compactions": [],
    "latest_keys": [
        _index("topic", "partition", "offset"),
        _index("topic", "partition", "tombstoneTs", only_with="tombstoneTs"),
    ],
    "groups": [],
    "group_offsets": [_index("topic", "partition", "group", unique=True), _index("group")],
    "deliveries": [_index("group", "state", "dueMs")],
    "open_ranges": [
        _index("group", "topic", "partition", "first"),
        _index("topic", "partition", "first"),
    ],
    "dead_letters": [
        _index("group", "state", "_id"),
        _index("group", "state", "fingerprint", "_id"),
        _index("group", "state", "event.topic", "_id"),
        _index("group", "event.topic", "event.partition", "event.offset"),
        _index("group", "diedMs", "_id"),
    ],
    "letter_counts": [_index("group")],
}


def prepare(database: Database[Document], shown: str, *, create: bool) -> None:
    """See that the database has a schema that is known; `create` makes it if there is none.

    Any number of processes may do so at once: every step leaves alone what is there."""
    found = database["meta"].find_one({"_id": "schema"})
    if found is None:
        if not create:
            raise StoreNotFound(f"there is no store at {shown} yet; the first publish makes it")
        _create(database)
    elif found["version"] > VERSION:
        raise StoreUnusable(
            f"{shown} was written by a newer dagster-bus (schema {found['version']}, this one "
            f"knows {VERSION}); upgrade dagster-bus"
        )


def _create(database: Database[Document]) -> None:
    make_collections(database)
    meta = database["meta"]
    meta.update_one({"_id": "dead_letters"}, {"$setOnInsert": {"last": 0}}, upsert=True)
    meta.update_one({"_id": "schema"}, {"$setOnInsert": {"version": VERSION}}, upsert=True)


def make_collections(database: Database[Document]) -> None:
    """Make the collections and indexes that are not there."""
    for name, indexes in INDEXES.items():
        if indexes:
            database[name].create_indexes(indexes)
        else:
            _create_collection(database, name)


def _create_collection(database: Database[Document], name: str) -> None:
    try:
        database.create_collection(name, check_exists=False)
    except OperationFailure as error:
        if error.code != NAMESPACE_EXISTS:
            raise
