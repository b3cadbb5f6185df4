"""Writing a group's next states to a MongoDB store.

Functions over an open transaction; the store begins and ends it.
"""

from collections.abc import Iterable, Sequence

from pymongo import DeleteOne, InsertOne, ReplaceOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.ranges import Ranges
from dagster_bus.core.store import Change, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import StaleState
from dagster_bus.stores.common import not_the_next
from dagster_bus.stores.mongo import letters, offsets
from dagster_bus.stores.mongo.appending import append
from dagster_bus.stores.mongo.burying import bury
from dagster_bus.stores.mongo.documents import (
    Document,
    breaker_from_document,
    delivery_to_document,
    ranges_of,
)
from dagster_bus.stores.mongo.errors import DUPLICATE_KEY, cause


def commit(database: Database[Document], session: ClientSession, change: Change) -> None:
    if change.expected_version is not None:
        _advance_group(database, session, change)
    touched = _put_deliveries(database, session, change)
    offsets.move(database, session, change, touched)
    if change.redrives:
        letters.redrive(database, session, change.group, change.redrives)
    tally = change.done
    if change.burials:
        tally += bury(database, session, change.group, change.burials)
    _add_to_account(database, session, change.group, tally, change.breaker)
    if change.told:
        append(database, session, change.told, change.told_ms)


def _advance_group(database: Database[Document], session: ClientSession, change: Change) -> None:
    """Take the group's next version. A group that is not there yet has version 0."""
    version = change.expected_version
    try:
        moved = database["groups"].update_one(
            {"_id": change.group, "version": version},
            {"$inc": {"version": 1}, "$setOnInsert": _ended(Tally())},
            upsert=version == 0,
            session=session,
        )
    except DuplicateKeyError:
        moved = None
    if moved is None or not (moved.matched_count or moved.did_upsert):
        raise StaleState(f"group {change.group} has moved on from version {version}")


def _add_to_account(
    database: Database[Document],
    session: ClientSession,
    group: str,
    tally: Tally,
    breaker: tuple[Breaker, Breaker] | None,
) -> None:
    change: Document = {}
    if tally != Tally():
        change["$inc"] = _ended(tally)
    if breaker is not None:
        before, after = breaker
        account = database["groups"].find_one({"_id": group}, session=session)
        if breaker_from_document(account) != before:
            raise StaleState(f"the circuit breaker of group {group} has changed")
        change["$set"] = {"failures": after.failures, "pausedUntilMs": after.paused_until_ms}
    if change:
        change["$setOnInsert"] = {"version": 0}
        database["groups"].update_one({"_id": group}, change, upsert=True, session=session)


def _ended(tally: Tally) -> Document:
    return {
        "processed": tally.processed,
        "filtered": tally.filtered,
        "deadLettered": tally.dead_lettered,
        "expired": tally.expired,
    }


def _put_deliveries(
    database: Database[Document], session: ClientSession, change: Change
) -> set[TopicPartition]:
    """Write the next states of deliveries, and keep the list of open ranges. Returns where ranges
    were opened or closed."""
    new = [each for each in change.deliveries if each.version == 1]
    known = [each for each in change.deliveries if each.version > 1]
    if new:
        _insert_deliveries(database, session, new)
    stored = _replace_deliveries(database, session, change, known) if known else {}
    return _keep_ranges(
        database, session, ((each, stored.get(each.id, ())) for each in (*new, *known))
    )


def _insert_deliveries(
    database: Database[Document], session: ClientSession, deliveries: Sequence[Delivery]
) -> None:
    try:
        database["deliveries"].insert_many(map(delivery_to_document, deliveries), session=session)
    except BulkWriteError as error:
        code, _ = cause(error)
        if code != DUPLICATE_KEY:
            raise
        ids = ", ".join(each.id for each in deliveries)
        raise StaleState(f"there is a delivery {ids} already") from None


def _replace_deliveries(
    database: Database[Document],
    session: ClientSession,
    change: Change,
    deliveries: Sequence[Delivery],
) -> dict[str, Ranges]:
    """Write the next states of deliveries, and return the ranges that each had."""
    ids = [each.id for each in deliveries]
    found = database["deliveries"].find({"_id": {"$in": ids}}, {"ranges": True}, session=session)
    ranges = {each["_id"]: ranges_of(each) for each in found}
    written = database["deliveries"].bulk_write(
        [_write(change, each) for each in deliveries], session=session
    )
    if written.matched_count + written.deleted_count != len(deliveries):
        raise not_the_next(deliveries)
    return ranges


def _write(change: Change, delivery: Delivery) -> ReplaceOne[Document] | DeleteOne:
    """What to do to a delivery, if what is stored is the state before."""
    before = {"_id": delivery.id, "version": delivery.version - 1}
    if change.forgets(delivery):
        return DeleteOne(before)
    return ReplaceOne(before, delivery_to_document(delivery))


def _keep_ranges(
    database: Database[Document],
    session: ClientSession,
    deliveries: Iterable[tuple[Delivery, Ranges]],
) -> set[TopicPartition]:
    """Open and close what differs between the ranges that deliveries had and have: none once they
    are done, and none at all if they are redriven, as the log is not needed for them."""
    closed: list[Document] = []
    opened: list[Document] = []
    touched: set[TopicPartition] = set()
    for delivery, earlier in deliveries:
        is_done = delivery.state is State.DONE
        if delivery.redriven or (earlier == delivery.ranges and not is_done):
            continue
        before = {*earlier}
        after = set() if is_done else {*delivery.ranges}
        closed += [_open_range(delivery, part) for part in sorted(before - after)]
        opened += [_open_range(delivery, part) for part in sorted(after - before)]
        touched |= {TopicPartition(part.topic, part.partition) for part in before ^ after}
    writes: list[DeleteOne | InsertOne[Document]] = [DeleteOne(each) for each in closed]
    writes += [InsertOne(each) for each in opened]
    if writes:
        database["open_ranges"].bulk_write(writes, session=session)
    return touched


def _open_range(delivery: Delivery, part: OffsetRange) -> Document:
    return {
        "group": delivery.group,
        "topic": part.topic,
        "partition": part.partition,
        "first": part.first,
        "last": part.last,
        "delivery": delivery.id,
    }
