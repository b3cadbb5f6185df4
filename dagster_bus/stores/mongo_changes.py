"""Writing a group's next states to a MongoDB store, and burying what it gave up on.

Functions over an open transaction; the store begins and ends it.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import orjson
from pymongo import ASCENDING, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.store import Burial, Change, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import StaleState
from dagster_bus.stores.mongo_documents import (
    Document,
    attributes_text,
    delivery_to_document,
    partition_id,
    partition_of,
)

BURIED_AT_ONCE = 1_000


def commit(database: Database[Document], session: ClientSession, change: Change) -> None:
    if change.frontiers:
        _advance_group(database, session, change)
    for delivery in change.deliveries:
        _put_delivery(database, session, delivery)
    _move_offsets(database, session, change)
    for tally in (change.done, *(_bury(database, session, each) for each in change.burials)):
        if tally != Tally():
            _add_to_account(database, session, change.group, tally)


def _advance_group(database: Database[Document], session: ClientSession, change: Change) -> None:
    """Take the group's next version. A group that is not there yet has version 0."""
    version = change.expected_version
    try:
        moved = database["groups"].update_one(
            {"_id": change.group, "version": version},
            {
                "$inc": {"version": 1},
                "$setOnInsert": {"processed": 0, "filtered": 0, "deadLettered": 0},
            },
            upsert=version == 0,
            session=session,
        )
    except DuplicateKeyError:
        moved = None
    if moved is None or not (moved.matched_count or moved.did_upsert):
        raise StaleState(f"group {change.group} has moved on from version {version}")


def _add_to_account(
    database: Database[Document], session: ClientSession, group: str, tally: Tally
) -> None:
    database["groups"].update_one(
        {"_id": group},
        {
            "$inc": {
                "processed": tally.processed,
                "filtered": tally.filtered,
                "deadLettered": tally.dead_lettered,
            },
            "$setOnInsert": {"version": 0},
        },
        upsert=True,
        session=session,
    )


def _put_delivery(database: Database[Document], session: ClientSession, delivery: Delivery) -> None:
    """Write a delivery's next state, and keep the list of open ranges."""
    document = delivery_to_document(delivery)
    deliveries, open_ranges = database["deliveries"], database["open_ranges"]
    if delivery.version == 1:
        try:
            deliveries.insert_one(document, session=session)
        except DuplicateKeyError:
            raise StaleState(f"there is a delivery {delivery.id} already") from None
        ranges = [_open_range(delivery, part) for part in delivery.ranges]
        open_ranges.insert_many(ranges, session=session)
    else:
        earlier = {"_id": delivery.id, "version": delivery.version - 1}
        if not deliveries.replace_one(earlier, document, session=session).matched_count:
            raise StaleState(
                f"delivery {delivery.id} is no longer at version {delivery.version - 1}"
            )
    if delivery.state is State.DONE:
        open_ranges.delete_many({"delivery": delivery.id}, session=session)


def _open_range(delivery: Delivery, part: OffsetRange) -> Document:
    return {
        "group": delivery.group,
        "topic": part.topic,
        "partition": part.partition,
        "first": part.first,
        "last": part.last,
        "delivery": delivery.id,
    }


def _move_offsets(database: Database[Document], session: ClientSession, change: Change) -> None:
    """Move the group's frontiers, and its cursors where ranges were opened or closed.

    No two changes that open or close ranges are made side by side, each with the other's ranges as
    they were: they also change the group's own document, its version or its account."""
    ids = {f"{partition_id(at)}:{change.group}": at for at in _touched(change)}
    if not ids:
        return
    offsets = database["group_offsets"]
    known = {own["_id"]: own for own in offsets.find({"_id": {"$in": list(ids)}}, session=session)}
    firsts = _first_offsets(database, session, change)
    oldest = _oldest_open(database, session, change.group, ids.values())
    updates = []
    for id, at in sorted(ids.items()):
        moved = _moved(known.get(id), firsts.get(at, 1), change.frontiers.get(at))
        if moved is not None:
            fields = {**at._asdict(), "group": change.group, **moved, **_updated(change)}
            fields["lastCommitted"] = oldest.get(at, fields["frontier"]) - 1
            updates.append(UpdateOne({"_id": id}, {"$set": fields}, upsert=True))
    if updates:
        offsets.bulk_write(updates, session=session)


def _touched(change: Change) -> set[TopicPartition]:
    return set(change.frontiers) | {
        TopicPartition(part.topic, part.partition)
        for delivery in change.deliveries
        if delivery.version == 1 or delivery.state is State.DONE
        for part in delivery.ranges
    }


def _first_offsets(
    database: Database[Document], session: ClientSession, change: Change
) -> dict[TopicPartition, int]:
    """The first offsets that are available where a frontier moves."""
    if not change.frontiers:
        return {}
    chosen = {"_id": {"$in": [partition_id(at) for at in change.frontiers]}}
    counters = database["counters"].find(chosen, session=session)
    return {partition_of(counter): counter["firstOffset"] for counter in counters}


def _moved(own: Document | None, first: int, frontier: int | None) -> Document | None:
    """A group begins with the first offset that is there when it takes its first event. What was
    trimmed before it came back, if it was away, is not counted as its own either."""
    if own is None:
        return None if frontier is None else {"frontier": frontier, "start": first}
    if frontier is None:
        return {"frontier": own["frontier"], "start": own["start"]}
    return {"frontier": frontier, "start": own["start"] + max(0, first - own["frontier"])}


def _oldest_open(
    database: Database[Document],
    session: ClientSession,
    group: str,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, int]:
    """The first offset of the oldest open range in each partition that has one."""
    found = database["open_ranges"].aggregate(
        [
            {"$match": {"group": group, "$or": [at._asdict() for at in partitions]}},
            {
                "$group": {
                    "_id": {"topic": "$topic", "partition": "$partition"},
                    "first": {"$min": "$first"},
                }
            },
        ],
        session=session,
    )
    return {partition_of(each["_id"]): each["first"] for each in found}


def _updated(change: Change) -> Document:
    """When it was, as far as the change tells."""
    times = [each.created_ms for each in change.deliveries if each.version == 1]
    times += [each.due_ms for each in change.deliveries if each.state is State.DONE]
    return {"updatedTs": max(times)} if times else {}


def _bury(database: Database[Document], session: ClientSession, burial: Burial) -> Tally:
    """Copy the wanted events of a delivery to the dead letters, and count both kinds."""
    story = {
        "group": burial.delivery.group,
        "delivery": burial.delivery.id,
        "fingerprint": burial.fingerprint,
        "diedMs": burial.died_ms,
    }
    events = _wanted_events(database, session, burial)
    dead = 0
    while chunk := list(islice(events, BURIED_AT_ONCE)):
        first = _take_ids(database, session, len(chunk))
        letters = [{"_id": id, **story, "event": event} for id, event in enumerate(chunk, first)]
        database["dead_letters"].insert_many(letters, session=session)
        dead += len(chunk)
    return Tally(filtered=burial.delivery.size - dead, dead_lettered=dead)


def _wanted_events(
    database: Database[Document], session: ClientSession, burial: Burial
) -> Iterator[Document]:
    for part in burial.delivery.ranges:
        found = database["events"].find(
            {
                "topic": part.topic,
                "partition": part.partition,
                "offset": {"$gte": part.first, "$lte": part.last},
            },
            {"_id": False, "bytes": False},
            sort=[("offset", ASCENDING)],
            batch_size=BURIED_AT_ONCE,
            session=session,
        )
        for event in found:
            attributes = orjson.loads(attributes_text(event.get("headers")))
            if burial.wanted.matches(attributes):
                yield event


def _take_ids(database: Database[Document], session: ClientSession, count: int) -> int:
    """The first of so many ascending numbers that no dead letter has."""
    before = database["meta"].find_one_and_update(
        {"_id": "dead_letters"}, {"$inc": {"last": count}}, upsert=True, session=session
    )
    last: int = before["last"] if before else 0
    return last + 1
