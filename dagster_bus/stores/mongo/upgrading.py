"""Bringing a MongoDB store of an earlier version to the present schema.

Any number of processes may do so at once, and any of them may end in the middle: every step is done
once, whoever does it, and the new version is noted when all of them are done. Programs of the
earlier version must have ended by then: they refuse to open the store, but not to go on.
"""

from collections import Counter
from functools import partial

from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure

from dagster_bus.stores.mongo import letters
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import Document
from dagster_bus.stores.mongo.schema import VERSION, make_collections

INDEXING_S = 3_600.0
"""How long the indexes of a store with many letters may take."""

LETTERS_AT_ONCE = 1_000

INDEX_NOT_FOUND = 27

UNUSED = {"dead_letters": ["group_1__id_1", "group_1_fingerprint_1"], "open_ranges": ["delivery_1"]}
"""Indexes of version 1 that nothing looks at any more."""


def upgrade(connection: MongoConnection) -> None:
    """Do what is left to do, and return when the store is of the present version."""
    meta = connection.database["meta"]
    with connection.reading() as session:
        found = meta.find_one({"_id": "schema"}, session=session)
    if found is None or found["version"] >= VERSION:
        return
    with connection.bounded(INDEXING_S):
        make_collections(connection.database)
    _mark_letters(connection)
    with connection.bounded(INDEXING_S):
        _drop_unused(connection)
    with connection.bounded():
        meta.update_one({"_id": "schema"}, {"$max": {"version": VERSION}})


def _mark_letters(connection: MongoConnection) -> None:
    """Say of the letters of version 1 that they are dead, and count them: some at a time, each of
    which is marked and counted in one transaction."""
    after: int | None = 0
    while after is not None:
        after = connection.transact(partial(_mark_some, connection.database, after))


def _mark_some(database: Database[Document], after: int, session: ClientSession) -> int | None:
    """Mark those of the next letters that nobody has marked yet; returns the last id that was
    looked at, or None at the end."""
    found = database["dead_letters"].find(
        {"_id": {"$gt": after}},
        {"group": True, "fingerprint": True, "state": True},
        sort=[("_id", ASCENDING)],
        limit=LETTERS_AT_ONCE,
        session=session,
    )
    page = list(found)
    unmarked = [letter for letter in page if "state" not in letter]
    if unmarked:
        chosen = {"_id": {"$in": [letter["_id"] for letter in unmarked]}}
        mark = {"$set": {"state": letters.DEAD}}
        database["dead_letters"].update_many(chosen, mark, session=session)
    for group in {letter["group"] for letter in unmarked}:
        own = (each["fingerprint"] for each in unmarked if each["group"] == group)
        letters.count(database, session, group, Counter(own))
    return page[-1]["_id"] if page else None


def _drop_unused(connection: MongoConnection) -> None:
    for collection, names in UNUSED.items():
        for name in names:
            try:
                connection.database[collection].drop_index(name)
            except OperationFailure as error:
                if error.code != INDEX_NOT_FOUND:
                    raise
