"""Where a group of a MongoDB store stands in its partitions, and how that moves.

Functions over an open transaction; the store begins and ends it.
"""

from collections.abc import Collection, Iterable, Mapping

from pymongo import ASCENDING, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.delivery import State
from dagster_bus.core.store import Change
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import OffsetTrimmed, StaleState
from dagster_bus.stores.mongo.documents import Document, partition_id, partition_of


def move(
    database: Database[Document],
    session: ClientSession,
    change: Change,
    touched: Collection[TopicPartition],
) -> None:
    """Move the group's frontiers, and its cursors in the partitions where ranges were opened or
    closed.

    No two changes that settle or take events are made side by side, each with the other's ranges
    as they were: they also change the group's own document, its account or its version. A change
    that only hands events from one delivery to another leaves every cursor where it is."""
    partitions = {*touched, *change.frontiers}
    if not partitions:
        return
    places = [*database["counters"].aggregate(_places(change.group, partitions), session=session)]
    if change.expected_version is not None:
        _require_available(change, {partition_of(at): at["firstOffset"] for at in places})
        _note_arrival(database, session, [at for at in places if not at["own"]])
    updates = [
        UpdateOne({"_id": f"{place['_id']}:{change.group}"}, {"$set": fields}, upsert=True)
        for place in places
        if (fields := _fields(place, change)) is not None
    ]
    if updates:
        database["group_offsets"].bulk_write(updates, session=session)


def _places(group: str, partitions: Iterable[TopicPartition]) -> list[Document]:
    """The counters of some partitions, each with where the group stands, and the oldest of its open
    ranges."""
    of_partition = [{"$eq": ["$topic", "$$topic"]}, {"$eq": ["$partition", "$$partition"]}]
    return [
        {"$match": {"_id": {"$in": [partition_id(at) for at in partitions]}}},
        {"$sort": {"_id": ASCENDING}},
        {
            "$lookup": {
                "from": "group_offsets",
                "let": {"id": {"$concat": ["$_id", ":", {"$literal": group}]}},
                "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$id"]}}}],
                "as": "own",
            }
        },
        {
            "$lookup": {
                "from": "open_ranges",
                "let": {"topic": "$topic", "partition": "$partition"},
                "pipeline": [
                    {"$match": {"group": group, "$expr": {"$and": of_partition}}},
                    {"$sort": {"first": ASCENDING}},
                    {"$limit": 1},
                    {"$project": {"first": True}},
                ],
                "as": "oldest",
            }
        },
    ]


def _fields(place: Document, change: Change) -> Document | None:
    """What is to be written of where the group stands; nothing, if it has never moved there."""
    at = partition_of(place)
    own = place["own"][0] if place["own"] else None
    moved = _moved(own, place["firstOffset"], change, at)
    if moved is None:
        return None
    oldest = place["oldest"][0]["first"] if place["oldest"] else moved["frontier"]
    return {
        **at._asdict(),
        "group": change.group,
        **moved,
        "lastCommitted": oldest - 1,
        **_updated(change),
    }


def _require_available(change: Change, firsts: Mapping[TopicPartition, int]) -> None:
    """Refuse a change that takes events which were trimmed away since it was decided: what moves a
    frontier is to be decided anew, and what names its events itself cannot have them any more."""
    for delivery in change.deliveries:
        if delivery.redriven or delivery.state is State.DONE:
            continue
        for part in delivery.ranges:
            at = TopicPartition(part.topic, part.partition)
            first = firsts.get(at, 1)
            if part.first < first and at in change.frontiers:
                raise StaleState(f"{part.topic}/{part.partition} begins with {first} by now")
            if part.first < first:
                raise OffsetTrimmed(*at, part.first, first)


def _note_arrival(
    database: Database[Document], session: ClientSession, places: Iterable[Document]
) -> None:
    """A group that is new to partitions has nothing there yet that who trims them could change, so
    both change what is kept of the partition itself."""
    arrived = [
        UpdateOne({"_id": place["_id"]}, {"$inc": {"groups": 1}}, upsert=True) for place in places
    ]
    if arrived:
        database["compactions"].bulk_write(arrived, session=session)


def _moved(own: Document | None, first: int, change: Change, at: TopicPartition) -> Document | None:
    """A group begins with the first offset that is there when it takes its first event, or where
    it is sent to. What was trimmed before it came back, if it was away, is not counted as its own
    either."""
    frontier = change.frontiers.get(at)
    shift = change.shifts.get(at, 0)
    if frontier is None:
        return own and {"frontier": own["frontier"], "start": own["start"]}
    start = first + shift
    if own is not None:
        start = own["start"] + max(0, first - own["frontier"]) + shift
    return {"frontier": frontier, "start": start, "owner": change.taker}


def _updated(change: Change) -> Document:
    """When it was, as far as the change tells."""
    times = [each.created_ms for each in change.deliveries if each.version == 1]
    times += [each.due_ms for each in change.deliveries if each.state is State.DONE]
    return {"updatedTs": max(times)} if times else {}
