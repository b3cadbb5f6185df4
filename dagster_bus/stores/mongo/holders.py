"""Which open deliveries of a MongoDB store hold the keys of events that come after."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from pymongo.client_session import ClientSession
from pymongo.database import Database

from dagster_bus.core.ranges import Place, joined
from dagster_bus.core.topic import LAST_OFFSET, OffsetRange
from dagster_bus.stores.mongo.documents import Document, at_places, partition_of, some_at_once

Key = tuple[str, int, str]
"""A key of one partition."""

Held = tuple[OffsetRange, str]


def holders(
    database: Database[Document], session: ClientSession, group: str, spans: Sequence[OffsetRange]
) -> list[tuple[Place, str]]:
    """Who holds the newest event of a key is the one to wait for."""
    wanted = sorted(_keyed(database, session, spans))
    held = _held_ranges(database, session, group, spans) if wanted else []
    keys = {key for _, key in wanted}
    newest: dict[Key, Place] = {}
    for place, key in _keyed(database, session, joined(span for span, _ in held)):
        if key in keys:
            newest[key] = max(place, newest.get(key, place))
    deliveries = dict(_deliveries(held, newest.items()))
    return [(place, deliveries[key]) for place, key in wanted if key in deliveries]


def _held_ranges(
    database: Database[Document], session: ClientSession, group: str, spans: Sequence[OffsetRange]
) -> list[Held]:
    """The open ranges of a group in the partitions of others, in order, each with its delivery."""
    partitions = sorted({(span.topic, span.partition) for span in spans})
    places = [{"topic": topic, "partition": number} for topic, number in partitions]
    found = database["open_ranges"].find({"group": group, "$or": places}, session=session)
    return sorted(
        (OffsetRange(*partition_of(each), each["first"], each["last"]), each["delivery"])
        for each in found
    )


def _deliveries(
    held: Sequence[Held], places: Iterable[tuple[Key, Place]]
) -> Iterator[tuple[Key, str]]:
    """For each key the delivery that has its place."""
    spans = [span for span, _ in held]
    for key, place in places:
        at = bisect_right(spans, OffsetRange(*place, LAST_OFFSET)) - 1
        while spans[at].last < place.offset:
            at -= 1
        yield key, held[at][1]


def _keyed(
    database: Database[Document], session: ClientSession, spans: Sequence[OffsetRange]
) -> Iterator[tuple[Place, Key]]:
    """The events of some ranges that have a key."""
    fields = {"_id": False, "topic": True, "partition": True, "offset": True, "key": True}
    for some in some_at_once(spans):
        asked = {"$or": [{**at_places(span), "key": {"$exists": True}} for span in some]}
        for event in database["events"].find(asked, fields, session=session):
            at = partition_of(event)
            yield Place(*at, event["offset"]), (*at, event["key"])
