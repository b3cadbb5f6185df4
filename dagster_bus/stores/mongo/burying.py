"""Burying what a group of a MongoDB store gave up on: its events become dead letters.

Functions over an open transaction; the store begins and ends it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

import orjson
from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.event import Batch, is_expired
from dagster_bus.core.mirroring import mirrored
from dagster_bus.core.store import Burial, Tally
from dagster_bus.core.topic import OffsetRange
from dagster_bus.stores.mongo import letters
from dagster_bus.stores.mongo.appending import append
from dagster_bus.stores.mongo.documents import (
    Document,
    at_places,
    attributes_text,
    event_from_document,
    some_at_once,
)

BURIED_AT_ONCE = 1_000

FILTERED, EXPIRED = "filtered", "expired"

Dead = tuple[Burial, Document]
"""An event that is to be a dead letter, and the burial that it belongs to."""


def bury(
    database: Database[Document], session: ClientSession, group: str, burials: Iterable[Burial]
) -> Tally:
    """Copy the events of deliveries to the dead letters, and count how each of them ended."""
    spared: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    events = (
        each for burial in burials for each in _dead_events(database, session, burial, spared)
    )
    while chunk := list(islice(events, BURIED_AT_ONCE)):
        first = _take_ids(database, session, len(chunk))
        documents = [_letter(id, *each) for id, each in enumerate(chunk, first)]
        database["dead_letters"].insert_many(documents, session=session)
        dead.update(burial.fingerprint for burial, _ in chunk)
        _mirror(database, session, chunk)
    letters.count(database, session, group, dead)
    return Tally(filtered=spared[FILTERED], expired=spared[EXPIRED], dead_lettered=dead.total())


def _dead_events(
    database: Database[Document], session: ClientSession, burial: Burial, spared: Counter[str]
) -> Iterator[Dead]:
    """The events of a burial that are to be dead letters; the others are counted. What compaction
    took in the meantime counts as filtered."""
    delivery = burial.delivery
    if delivery.redriven:
        events = letters.sent_back(database, session, delivery.group, delivery.ranges)
    else:
        events = _logged(database, session, delivery.ranges)
    found = 0
    for event in events:
        found += 1
        fate = _spared(burial, event)
        if fate:
            spared[fate] += 1
        else:
            yield burial, event
    spared[FILTERED] += delivery.size - found


def _letter(id: int, burial: Burial, event: Document) -> Document:
    return {
        "_id": id,
        "group": burial.delivery.group,
        "delivery": burial.delivery.id,
        "fingerprint": burial.fingerprint,
        "diedMs": burial.died_ms,
        "state": letters.DEAD,
        "event": event,
    }


def _mirror(database: Database[Document], session: ClientSession, dead: Iterable[Dead]) -> None:
    """Append what was just buried to the mirrors of its topics."""
    batches: list[Batch] = []
    now_ms = 0
    copied = (each for each in dead if each[0].mirrors)
    for _, some in groupby(copied, key=lambda each: each[0].delivery.id):
        burials, events = zip(*some, strict=True)
        burial = burials[0]
        now_ms = burial.died_ms
        batches += mirrored(
            [event_from_document(event) for event in events],
            mirrors=burial.mirrors,
            group=burial.delivery.group,
            fingerprint=burial.fingerprint,
            errors=burial.delivery.errors,
            now_ms=now_ms,
        )
    if batches:
        append(database, session, batches, now_ms)


def _spared(burial: Burial, event: Document) -> str | None:
    """What an event counts as that is not to be buried. Whoever sent a letter back wants it: it
    dies again as it is."""
    if burial.delivery.redriven:
        return None
    if burial.wanted:
        attributes = orjson.loads(attributes_text(event.get("headers")))
        if not burial.wanted.matches(attributes, event.get("key")):
            return FILTERED
    return EXPIRED if is_expired(event["ts"], event.get("ttl_s"), burial.died_ms) else None


def _logged(
    database: Database[Document], session: ClientSession, spans: Sequence[OffsetRange]
) -> Iterator[Document]:
    for some in some_at_once(spans):
        yield from database["events"].find(
            {"$or": [at_places(span) for span in some]},
            {"_id": False, "bytes": False},
            sort=[(field, ASCENDING) for field in ("topic", "partition", "offset")],
            batch_size=BURIED_AT_ONCE,
            session=session,
        )


def _take_ids(database: Database[Document], session: ClientSession, count: int) -> int:
    """The first of so many ascending numbers that no dead letter has."""
    before = database["meta"].find_one_and_update(
        {"_id": "dead_letters"}, {"$inc": {"last": count}}, upsert=True, session=session
    )
    last: int = before["last"] if before else 0
    return last + 1
