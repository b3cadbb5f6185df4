"""Groups and their deliveries in the embedded store.

Functions over an open transaction; the store begins and ends it.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.ranges import Place
from dagster_bus.core.store import Change, GroupProgress, GroupView, PartitionHead, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import BusError, OffsetTrimmed, StaleState
from dagster_bus.stores.common import not_the_next
from dagster_bus.stores.sqlite import letters, log
from dagster_bus.stores.sqlite.connection import load_queries
from dagster_bus.stores.sqlite.ends import Ends
from dagster_bus.stores.sqlite.rows import delivery_from_row, delivery_to_row

QUERIES = load_queries()


def view(
    connection: sqlite3.Connection,
    group: str,
    topics: Sequence[str],
    *,
    now_ms: int,
    due_limit: int,
) -> GroupView:
    version, breaker, tally = _account(connection, group)
    asked = {"group": group, "topics": json.dumps(topics)}
    heads = connection.execute(QUERIES["partition_heads"], asked).fetchall()
    due = {"group": group, "now": now_ms, "due_limit": due_limit}
    rows = connection.execute(QUERIES["deliveries_to_see"], due)
    seen = [delivery_from_row(row) for row in rows]
    return GroupView(
        version=version,
        heads=tuple(
            PartitionHead(
                TopicPartition(topic, partition),
                frontier,
                end,
                ts,
                bool(is_new),
                bool(is_held),
                owner,
            )
            for topic, partition, frontier, end, ts, is_new, is_held, owner in heads
        ),
        in_flight=tuple(each for each in seen if each.in_flight),
        due=tuple(each for each in seen if each.state is State.WAITING),
        tally=tally,
        breaker=breaker,
        blocked=sum(each.state is State.BLOCKED for each in seen),
    )


def breaker(connection: sqlite3.Connection, group: str) -> Breaker:
    return _account(connection, group)[1]


def progress(connection: sqlite3.Connection, group: str, topics: Sequence[str]) -> GroupProgress:
    asked = {"group": group, "topics": json.dumps(topics)}
    _, _, tally = _account(connection, group)
    cursors = connection.execute(QUERIES["cursors"], asked).fetchall()
    sizes = Counter(dict(connection.execute(QUERIES["open_sizes"], (group,)).fetchall()))
    return GroupProgress(
        published=sum(newest - before for _, _, before, _, newest in cursors),
        tally=tally,
        reserved=sizes[State.RESERVED],
        running=sizes[State.RUNNING],
        waiting=sizes[State.WAITING],
        blocked=sizes[State.BLOCKED],
        cursors={TopicPartition(topic, number): at for topic, number, _, at, _ in cursors},
    )


def open_deliveries(
    connection: sqlite3.Connection, group: str, state: State | None
) -> list[Delivery]:
    asked = {"group": group, "state": state.value if state else None}
    rows = connection.execute(QUERIES["open_deliveries"], asked)
    return [delivery_from_row(row) for row in rows]


def deliveries(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Delivery]:
    rows = connection.execute(QUERIES["deliveries"], (json.dumps(ids),))
    return [delivery_from_row(row) for row in rows]


def holders(
    connection: sqlite3.Connection, group: str, spans: Sequence[OffsetRange]
) -> list[tuple[Place, str]]:
    found = []
    for span in spans:
        at = (span.topic, span.partition)
        id, _ = connection.execute(QUERIES["beginning"], at).fetchone() or (0, 0)
        asked = {"group": group, "id": id, "first": span.first, "last": span.last}
        rows = connection.execute(QUERIES["holders"], asked)
        found += [(Place(*at, offset), delivery) for offset, delivery in rows]
    return found


def commit(connection: sqlite3.Connection, *changes: Change) -> None:
    """Write changes, all of them or none: with the same few statements for one and for many."""
    new = [(each.group,) for each in changes if not each.expected_version]
    if new:  # a group that has a version is there
        connection.executemany(QUERIES["ensure_group"], new)
    _advance(connection, changes)
    _move_frontiers(connection, changes)
    _put_deliveries(connection, changes)
    ended: list[tuple[int | str, ...]] = []
    for change in changes:
        if change.redrives:
            letters.redrive(connection, change.group, change.redrives)
        if change.breaker is not None:
            _set_breaker(connection, change.group, *change.breaker)
        tally = change.done
        for burial in change.burials:
            tally += letters.bury(connection, burial)
        if tally != Tally():
            figures = (tally.processed, tally.filtered, tally.dead_lettered, tally.expired)
            ended.append((*figures, change.group))
        if change.told:
            log.append(connection, Ends(), change.told, change.told_ms)
    if ended:
        connection.executemany(QUERIES["add_to_account"], ended)


def _set_breaker(
    connection: sqlite3.Connection, group: str, before: Breaker, after: Breaker
) -> None:
    values = (*astuple(after), group, *astuple(before))
    if not connection.execute(QUERIES["set_breaker"], values).rowcount:
        raise StaleState(f"the circuit breaker of group {group} has changed")


def _account(connection: sqlite3.Connection, group: str) -> tuple[int, Breaker, Tally]:
    row = connection.execute(QUERIES["group_account"], (group,)).fetchone()
    if row is None:
        return 0, Breaker(), Tally()
    version, failures, paused_until_ms, *ended = row
    return version, Breaker(failures, paused_until_ms), Tally(*ended)


def _advance(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    expected = [
        (each.group, each.expected_version) for each in changes if each.expected_version is not None
    ]
    if expected and connection.executemany(QUERIES["advance_group"], expected).rowcount != len(
        expected
    ):
        decided = ", ".join(f"{group} from version {version}" for group, version in expected)
        raise StaleState(f"a group has moved on: {decided}")


def _move_frontiers(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    moves = [
        {
            "group": change.group,
            "frontier": offset,
            "shift": change.shifts.get(at, 0),
            "owner": change.taker,
            "topic": at.topic,
            "partition": at.partition,
        }
        for change in changes
        for at, offset in change.frontiers.items()
    ]
    if moves:
        connection.executemany(QUERIES["move_frontier"], moves)


def _put_deliveries(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Write the next states of deliveries, and keep the list of open ranges."""
    deliveries = [each for change in changes for each in change.deliveries]
    new = [each for each in deliveries if each.version == 1]
    known = [each for each in deliveries if each.version > 1]
    forgotten = [
        each
        for change in changes
        for each in change.deliveries
        if each.version > 1 and change.forgets(each)
    ]
    gone = {each.id for each in forgotten}
    kept = [each for each in known if each.id not in gone]
    rows = {each.id: delivery_to_row(each) for each in kept}
    still_open = [each for each in known if each.state is not State.DONE]
    before = _stored_ranges(connection, still_open) if still_open else {}
    _write_all(connection, "insert_delivery", new, map(delivery_to_row, new))
    _write_all(connection, "update_delivery", kept, rows.values())
    _write_all(connection, "forget_delivery", forgotten, map(_version, forgotten))
    moved = [
        each
        for each in known
        if not each.redriven
        and (each.state is State.DONE or before[each.id] != rows[each.id]["ranges"])
    ]
    if moved:
        ids = json.dumps([each.id for each in moved])
        connection.execute(QUERIES["close_ranges"], (ids,))
    opened = [
        {
            "group": each.group,
            "delivery": each.id,
            "topic": part.topic,
            "partition": part.partition,
            "first": part.first,
            "last": part.last,
        }
        for each in (*new, *moved)
        if not each.redriven and each.state is not State.DONE
        for part in each.ranges
    ]
    if opened and connection.executemany(QUERIES["open_range"], opened).rowcount != len(opened):
        raise _trimmed(connection, changes)


def _trimmed(connection: sqlite3.Connection, changes: Sequence[Change]) -> BusError:
    """Some events were trimmed away since a change was decided on: what moves a frontier is to be
    decided anew, and what names its events itself cannot have them any more. Of several changes
    nobody knows yet which one it was."""
    if len(changes) == 1:
        (change,) = changes
        for part in (part for each in change.deliveries for part in each.ranges):
            at = TopicPartition(part.topic, part.partition)
            _, first = connection.execute(QUERIES["beginning"], at).fetchone() or (0, 1)
            if part.first < first and at not in change.frontiers:
                return OffsetTrimmed(*at, part.first, first)
    groups = ", ".join(each.group for each in changes)
    return StaleState(f"group {groups} is about to take events that are not there any more")


def _write_all(
    connection: sqlite3.Connection,
    query: str,
    deliveries: Sequence[Delivery],
    rows: Iterable[dict[str, Any]],
) -> None:
    """Write each delivery, if what is stored is the state before."""
    if not deliveries:
        return
    if connection.executemany(QUERIES[query], rows).rowcount != len(deliveries):
        raise not_the_next(deliveries)


def _version(delivery: Delivery) -> dict[str, Any]:
    return {"id": delivery.id, "version": delivery.version}


def _stored_ranges(
    connection: sqlite3.Connection, deliveries: Sequence[Delivery]
) -> dict[str, str]:
    ids = json.dumps([each.id for each in deliveries])
    return dict(connection.execute(QUERIES["stored_ranges"], (ids,)).fetchall())
