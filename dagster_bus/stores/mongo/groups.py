"""Groups and their deliveries in a MongoDB store.

Functions over a session that sees one moment, or over an open transaction.
"""

from collections import Counter
from collections.abc import Sequence

from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.store import GroupProgress, GroupView, PartitionHead
from dagster_bus.stores.mongo.documents import (
    Document,
    breaker_from_document,
    delivery_from_document,
    partition_of,
    tally_from_document,
)

OPEN = [state.value for state in State if state is not State.DONE]
SEEN = [State.RESERVED.value, State.RUNNING.value, State.BLOCKED.value]
"""Deliveries that are under way, or keep the group from going on: never many."""


def view(
    database: Database[Document],
    session: ClientSession,
    group: str,
    topics: Sequence[str],
    *,
    now_ms: int,
    due_limit: int,
) -> GroupView:
    account = database["groups"].find_one({"_id": group}, session=session)
    heads = database["counters"].aggregate(_heads(group, topics), session=session)
    found = database["deliveries"].find({"group": group, "state": {"$in": SEEN}}, session=session)
    seen = [delivery_from_document(each) for each in found]
    due = _due(database, session, group, now_ms, due_limit)
    return GroupView(
        version=account["version"] if account else 0,
        heads=tuple(map(_head, heads)),
        in_flight=tuple(each for each in seen if each.in_flight),
        due=tuple(map(delivery_from_document, due)),
        tally=tally_from_document(account),
        breaker=breaker_from_document(account),
        blocked=sum(each.state is State.BLOCKED for each in seen),
    )


def _due(
    database: Database[Document],
    session: ClientSession,
    group: str,
    now_ms: int,
    limit: int,
) -> list[Document]:
    if not limit:  # which would be without end
        return []
    due = {"group": group, "state": State.WAITING.value, "dueMs": {"$lte": now_ms}}
    found = database["deliveries"].find(due, session=session)
    return list(found.sort("dueMs", ASCENDING).limit(limit))


def _heads(group: str, topics: Sequence[str]) -> list[Document]:
    """The counters of some topics, each with the group's frontier, the event that stands there, and
    an open range of the group. A frontier lies at or after the first offset that is available."""
    of_partition = [{"$eq": ["$topic", "$$topic"]}, {"$eq": ["$partition", "$$partition"]}]
    return [
        {"$match": {"topic": {"$in": list(topics)}}},
        {"$sort": {"topic": ASCENDING, "partition": ASCENDING}},
        {
            "$lookup": {
                "from": "group_offsets",
                "let": {"id": {"$concat": ["$_id", ":", {"$literal": group}]}},
                "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$id"]}}}],
                "as": "own",
            }
        },
        {"$set": {"frontier": {"$max": [{"$first": "$own.frontier"}, "$firstOffset"]}}},
        {
            "$lookup": {
                "from": "events",
                "let": {"topic": "$topic", "partition": "$partition", "frontier": "$frontier"},
                "pipeline": [
                    {
                        "$match": {
                            "$expr": {"$and": [*of_partition, {"$gte": ["$offset", "$$frontier"]}]}
                        }
                    },
                    {"$sort": {"offset": ASCENDING}},
                    {"$limit": 1},
                    {"$project": {"ts": True}},
                ],
                "as": "next",
            }
        },
        {
            "$lookup": {
                "from": "open_ranges",
                "let": {"topic": "$topic", "partition": "$partition"},
                "pipeline": [
                    {"$match": {"group": group, "$expr": {"$and": of_partition}}},
                    {"$limit": 1},
                    {"$project": {"_id": True}},
                ],
                "as": "held",
            }
        },
    ]


def _head(found: Document) -> PartitionHead:
    return PartitionHead(
        partition=partition_of(found),
        frontier=found["frontier"],
        end=found["nextOffset"],
        frontier_ts=next((event["ts"] for event in found["next"]), None),
        is_new=not found["own"],
        is_held=bool(found["held"]),
        owner=next((own.get("owner") for own in found["own"]), None),
    )


def names(database: Database[Document], session: ClientSession) -> list[str]:
    found = database["groups"].find({}, {"_id": True}, session=session).sort("_id", ASCENDING)
    return [each["_id"] for each in found]


def breaker(database: Database[Document], session: ClientSession, group: str) -> Breaker:
    return breaker_from_document(database["groups"].find_one({"_id": group}, session=session))


def deliveries(
    database: Database[Document], session: ClientSession, ids: Sequence[str]
) -> list[Delivery]:
    found = database["deliveries"].find({"_id": {"$in": [*ids]}}, session=session)
    return [delivery_from_document(each) for each in found]


def open_deliveries(
    database: Database[Document], session: ClientSession, group: str, state: State | None
) -> list[Delivery]:
    states = [each for each in OPEN if state is None or each == state]
    found = database["deliveries"].find({"group": group, "state": {"$in": states}}, session=session)
    found.sort([("createdMs", ASCENDING), ("_id", ASCENDING)])
    return [delivery_from_document(each) for each in found]


def progress(
    database: Database[Document], session: ClientSession, group: str, topics: Sequence[str]
) -> GroupProgress:
    account = database["groups"].find_one({"_id": group}, session=session)
    own = {
        partition_of(document): document
        for document in database["group_offsets"].find({"group": group}, session=session)
    }
    names = sorted({*topics, *(at.topic for at in own)})
    counters = database["counters"].find({"topic": {"$in": names}}, session=session)
    counters.sort([("topic", ASCENDING), ("partition", ASCENDING)])
    published = 0
    cursors = {}
    for counter in counters:
        at = partition_of(counter)
        if at.topic in topics or at in own:
            published += _published(counter, own.get(at), is_read=at.topic in topics)
            cursors[at] = _cursor(counter, own.get(at))
    sizes = _open_sizes(database, session, group)
    return GroupProgress(
        published=published,
        tally=tally_from_document(account),
        reserved=sizes[State.RESERVED],
        running=sizes[State.RUNNING],
        waiting=sizes[State.WAITING],
        blocked=sizes[State.BLOCKED],
        cursors=cursors,
    )


def _published(counter: Document, own: Document | None, *, is_read: bool) -> int:
    """The events of a partition that are the group's: of a topic that it no longer reads, those
    that it took. What was trimmed before it came, or while it was away, is not. A group may begin
    beyond the end: then none is its own yet."""
    first: int = counter["firstOffset"]
    end: int = counter["nextOffset"]
    if own is None:
        return end - first
    frontier: int = own["frontier"]
    start: int = own["start"]
    if not is_read:
        return frontier - start
    return max(end, frontier) - start - max(0, first - frontier)


def _cursor(counter: Document, own: Document | None) -> int:
    """Before the oldest event that is not settled: of an open delivery, or at the frontier."""
    if own is None:
        return int(counter["firstOffset"]) - 1
    if own["lastCommitted"] < own["frontier"] - 1:
        return int(own["lastCommitted"])
    return int(max(own["frontier"], counter["firstOffset"])) - 1


def _open_sizes(database: Database[Document], session: ClientSession, group: str) -> Counter[str]:
    """Events inside deliveries of each state."""
    found = database["deliveries"].aggregate(
        [
            {"$match": {"group": group, "state": {"$in": OPEN}}},
            {"$group": {"_id": "$state", "size": {"$sum": "$size"}}},
        ],
        session=session,
    )
    return Counter({each["_id"]: each["size"] for each in found})
