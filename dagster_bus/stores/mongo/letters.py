"""Dead letters in a MongoDB store: finding them, sending them back, letting them go.

How many are dead of each kind is kept beside them, and changed by the transaction that changes
them. Functions over a session, and over an open transaction where they write.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from pymongo import ASCENDING, DESCENDING, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.ranges import Place, joined
from dagster_bus.core.store import DeadLetter, LetterQuery, LetterState, Redrive
from dagster_bus.core.topic import LAST_OFFSET, OffsetRange
from dagster_bus.errors import StaleState
from dagster_bus.stores.common import errors_from_text
from dagster_bus.stores.mongo.documents import (
    Document,
    at_places,
    dead_letter_from_document,
    ranges_of,
    some_at_once,
)
from dagster_bus.stores.mongo.groups import OPEN

DEAD = LetterState.DEAD.value
REDRIVEN = LetterState.REDRIVEN.value

EVERY = [state.value for state in LetterState]

PLACE = ("topic", "partition", "offset")


def find(
    database: Database[Document],
    session: ClientSession,
    query: LetterQuery,
    limit: int,
    before: int | None,
) -> list[DeadLetter]:
    """Letters with the errors of the deliveries that they died in."""
    if not limit:
        return []
    found = database["dead_letters"].find(
        _asked(query, before), hint=_hint(query), sort=[("_id", DESCENDING)], session=session
    )
    letters = list(found.limit(limit))
    ids = list({letter["delivery"] for letter in letters})
    of_letters = database["deliveries"].find(
        {"_id": {"$in": ids}}, {"errors": True}, session=session
    )
    errors = {each["_id"]: errors_from_text(each["errors"]) for each in of_letters}
    return [dead_letter_from_document(each, errors[each["delivery"]]) for each in letters]


def _asked(query: LetterQuery, before: int | None) -> Document:
    """Every query names a state, or each of them: so all of them find an index in the order of
    the ids."""
    asked: Document = {
        "group": query.group,
        "state": query.state.value if query.state else {"$in": EVERY},
    }
    if query.fingerprint is not None:
        asked["fingerprint"] = query.fingerprint
    if query.topic is not None:
        asked["event.topic"] = query.topic
    for field, condition in (
        ("diedMs", {"$gte": query.died_from_ms, "$lt": query.died_before_ms}),
        ("_id", {"$in": None if query.ids is None else list(query.ids), "$lt": before}),
    ):
        given = {word: value for word, value in condition.items() if value is not None}
        if given:
            asked[field] = given
    return asked


def _hint(query: LetterQuery) -> list[tuple[str, int]] | None:
    """The index to look into. The server tries several if it is not told, and stays with one that
    did well for a group with many letters when another one has few."""
    if query.ids is not None:
        return None
    if query.fingerprint is not None:
        return _index("group", "state", "fingerprint", "_id")
    if query.topic is not None:
        return _index("group", "state", "event.topic", "_id")
    return _index("group", "state", "_id")


def _index(*fields: str) -> list[tuple[str, int]]:
    return [(field, ASCENDING) for field in fields]


def counts(database: Database[Document], session: ClientSession, group: str) -> dict[str, int]:
    found = database["letter_counts"].find({"group": group, "count": {"$gt": 0}}, session=session)
    found.sort([("count", DESCENDING), ("fingerprint", ASCENDING)])
    return {each["fingerprint"]: each["count"] for each in found}


def count(
    database: Database[Document], session: ClientSession, group: str, more: Mapping[str, int]
) -> None:
    """Add to the numbers of a group's dead letters by fingerprint."""
    changes = [(f"{group}:{kind}", kind, by) for kind, by in sorted(more.items()) if by]
    if not changes:
        return
    numbers = database["letter_counts"]
    numbers.bulk_write(
        [
            UpdateOne(
                {"_id": id},
                {"$inc": {"count": by}, "$set": {"group": group, "fingerprint": kind}},
                upsert=True,
            )
            for id, kind, by in changes
        ],
        session=session,
    )
    lowered = [id for id, _, by in changes if by < 0]
    if lowered:
        numbers.delete_many({"_id": {"$in": lowered}, "count": {"$lte": 0}}, session=session)


def redrive(
    database: Database[Document], session: ClientSession, group: str, redrives: Sequence[Redrive]
) -> None:
    """Mark letters as sent back, all of which must be dead."""
    letters = database["dead_letters"]
    ids = [each.letter for each in redrives]
    dead = {"_id": {"$in": ids}, "group": group, "state": DEAD}
    found = list(letters.find(dead, {"fingerprint": True}, session=session))
    if len(found) < len(ids):
        left = Counter(ids) - Counter(letter["_id"] for letter in found)
        raise StaleState(f"letter {min(left)} of group {group} is not dead")
    updates = [
        UpdateOne({"_id": each.letter}, {"$set": {"state": REDRIVEN, "patched": each.payload}})
        for each in redrives
        if each.payload is not None
    ]
    unpatched = [each.letter for each in redrives if each.payload is None]
    if updates:
        letters.bulk_write(updates, session=session)
    if unpatched:
        letters.update_many(
            {"_id": {"$in": unpatched}}, {"$set": {"state": REDRIVEN}}, session=session
        )
    fewer = Counter(letter["fingerprint"] for letter in found)
    count(database, session, group, {kind: -number for kind, number in fewer.items()})


def sent_back(
    database: Database[Document],
    session: ClientSession,
    group: str,
    spans: Sequence[OffsetRange],
) -> Iterator[Document]:
    """The documents of the events that were sent back at some places, as they are to be delivered:
    of each place the newest letter's, with the payload that this was sent back with."""
    for some in some_at_once(spans):
        newest: dict[Place, Document] = {}
        places = [{"group": group, "state": REDRIVEN, **at_places(span, "event.")} for span in some]
        fields = {"event": True, "patched": True}
        found = database["dead_letters"].find(
            {"$or": places},
            fields,
            hint=_index("group", *(f"event.{field}" for field in PLACE)),
            session=session,
        )
        for letter in found:
            earlier = newest.get(_place(letter))
            if earlier is None or earlier["_id"] < letter["_id"]:
                newest[_place(letter)] = letter
        for place in sorted(newest):
            yield _as_delivered(newest[place])


def _as_delivered(letter: Document) -> Document:
    event: Document = letter["event"]
    if "patched" not in letter:
        return event
    kept = {name: value for name, value in event.items() if name != "payload_sha256"}
    return {**kept, "payload": letter["patched"]}


def _place(letter: Document) -> Place:
    event = letter["event"]
    return Place(event["topic"], event["partition"], event["offset"])


def purge(
    database: Database[Document],
    session: ClientSession,
    group: str,
    died_before_ms: int,
    limit: int,
) -> int:
    """Delete letters in the order of their deaths, but for those that are still to be read. Who
    sends one of them back at the same time changes it, and one of both begins anew."""
    letters = database["dead_letters"]
    is_needed = _needed(database, session, group)
    old = letters.find(
        {"group": group, "diedMs": {"$lt": died_before_ms}},
        {"state": True, "fingerprint": True} | {f"event.{field}": True for field in PLACE},
        sort=[("diedMs", ASCENDING), ("_id", ASCENDING)],
        session=session,
    )
    spare = (each for each in old if each["state"] == DEAD or not is_needed(_place(each)))
    chosen = list(islice(spare, limit))
    if not chosen:
        return 0
    ids = [letter["_id"] for letter in chosen]
    deleted = letters.delete_many({"_id": {"$in": ids}}, session=session).deleted_count
    dead = Counter(letter["fingerprint"] for letter in chosen if letter["state"] == DEAD)
    count(database, session, group, {kind: -number for kind, number in dead.items()})
    return deleted


def _needed(
    database: Database[Document], session: ClientSession, group: str
) -> Callable[[Place], bool]:
    """Tells whether an open delivery still has to read the letter of a place."""
    reading = {"group": group, "state": {"$in": OPEN}, "redriven": True}
    found = database["deliveries"].find(reading, {"ranges": True}, session=session)
    spans = joined(part for delivery in found for part in ranges_of(delivery))

    def is_needed(place: Place) -> bool:
        before = bisect_right(spans, OffsetRange(*place, LAST_OFFSET))
        if not before:
            return False
        span = spans[before - 1]
        return (span.topic, span.partition) == place[:2] and place.offset <= span.last

    return is_needed
