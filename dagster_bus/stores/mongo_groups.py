"""Groups and their deliveries in a MongoDB store.

Functions over a session that sees one moment, or over an open transaction.
"""

from collections import Counter
from collections.abc import Sequence

from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.delivery import State
from dagster_bus.core.store import GroupProgress, GroupView, PartitionHead
from dagster_bus.stores.mongo_documents import (
    Document,
    delivery_from_document,
    partition_of,
    tally_from_document,
)

IN_FLIGHT = [State.RESERVED.value, State.RUNNING.value]
OPEN = [*IN_FLIGHT, State.WAITING.value]


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
    deliveries = database["deliveries"]
    in_flight = deliveries.find({"group": group, "state": {"$in": IN_FLIGHT}}, session=session)
    due = deliveries.find(
        {"group": group, "state": State.WAITING.value, "dueMs": {"$lte": now_ms}}, session=session
    )
    return GroupView(
        version=account["version"] if account else 0,
        heads=tuple(map(_head, heads)),
        in_flight=tuple(map(delivery_from_document, in_flight)),
        due=tuple(map(delivery_from_document, due.sort("dueMs", ASCENDING).limit(due_limit))),
        tally=tally_from_document(account),
    )


def _heads(group: str, topics: Sequence[str]) -> list[Document]:
    """The counters of some topics, each with the group's frontier and the event that stands there.
    A frontier lies at or after the first offset that is available."""
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
                            "$expr": {
                                "$and": [
                                    {"$eq": ["$topic", "$$topic"]},
                                    {"$eq": ["$partition", "$$partition"]},
                                    {"$gte": ["$offset", "$$frontier"]},
                                ]
                            }
                        }
                    },
                    {"$sort": {"offset": ASCENDING}},
                    {"$limit": 1},
                    {"$project": {"ts": True}},
                ],
                "as": "next",
            }
        },
    ]


def _head(found: Document) -> PartitionHead:
    return PartitionHead(
        partition=partition_of(found),
        frontier=found["frontier"],
        end=found["nextOffset"],
        frontier_ts=next((event["ts"] for event in found["next"]), None),
    )


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
        cursors=cursors,
    )


def _published(counter: Document, own: Document | None, *, is_read: bool) -> int:
    """The events of a partition that are the group's: of a topic that it no longer reads, those
    that it took. What was trimmed before it came, or while it was away, is not."""
    first: int = counter["firstOffset"]
    end: int = counter["nextOffset"]
    if own is None:
        return end - first
    start: int = own["start"] + max(0, first - own["frontier"])
    return (end if is_read else int(own["frontier"])) - start


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
