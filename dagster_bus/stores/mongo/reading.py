"""Reading a MongoDB store's log: events in order, some at a time."""

from collections.abc import Collection, Iterator
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
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import (
    Document,
    at_places,
    event_from_document,
    partition_id,
)

Page = list[Document]

ALWAYS = ("offset", "ts", "bytes")
"""The fields by which a reader knows where it is."""


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
    connection: MongoConnection,
    span: OffsetRange,
    limit: int = 0,
    shared_by: int = 1,
    fields: Collection[str] | None = None,
) -> Iterator[Page]:
    """The documents of a range, or some fields of them, some at a time. Where some are missing it
    is asked why: compaction takes single ones, and that is well; if they were trimmed away, the
    reader is told."""
    if span.first > span.last:
        return
    expected = span.first
    with connection.session() as session:
        most = max(PAGE_EVENTS // shared_by, LEAST_EVENTS)
        cursor = _find(connection.database, session, span, limit, most, fields)
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
    fields: Collection[str] | None,
) -> Cursor[Document]:
    return database["events"].find(
        at_places(span),
        None if fields is None else {"_id": 0} | dict.fromkeys({*fields, *ALWAYS}, 1),
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
