"""Groups and their deliveries in the embedded store.

Functions over an open transaction; the store begins and ends it.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.store import (
    Burial,
    Change,
    GroupProgress,
    GroupView,
    PartitionHead,
    Tally,
)
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import StaleState
from dagster_bus.stores.sqlite_connection import load_queries
from dagster_bus.stores.sqlite_rows import delivery_from_row, delivery_to_row

QUERIES = load_queries()


def view(
    connection: sqlite3.Connection,
    group: str,
    topics: Sequence[str],
    *,
    now_ms: int,
    due_limit: int,
) -> GroupView:
    version, tally = _account(connection, group)
    heads = connection.execute(QUERIES["partition_heads"], (group, json.dumps(topics))).fetchall()
    asked = {"group": group, "now": now_ms, "due_limit": due_limit}
    rows = connection.execute(QUERIES["open_deliveries"], asked)
    open_ones = [delivery_from_row(row) for row in rows]
    return GroupView(
        version=version,
        heads=tuple(
            PartitionHead(TopicPartition(topic, partition), frontier, end, ts)
            for topic, partition, frontier, end, ts in heads
        ),
        in_flight=tuple(delivery for delivery in open_ones if delivery.in_flight),
        due=tuple(delivery for delivery in open_ones if not delivery.in_flight),
        tally=tally,
    )


def progress(connection: sqlite3.Connection, group: str, topics: Sequence[str]) -> GroupProgress:
    asked = {"group": group, "topics": json.dumps(topics)}
    _, tally = _account(connection, group)
    cursors = connection.execute(QUERIES["cursors"], asked).fetchall()
    sizes = Counter(dict(connection.execute(QUERIES["open_sizes"], (group,)).fetchall()))
    return GroupProgress(
        published=sum(newest - before for _, _, before, _, newest in cursors),
        tally=tally,
        reserved=sizes[State.RESERVED],
        running=sizes[State.RUNNING],
        waiting=sizes[State.WAITING],
        cursors={TopicPartition(topic, number): at for topic, number, _, at, _ in cursors},
    )


def commit(connection: sqlite3.Connection, change: Change) -> None:
    connection.execute(QUERIES["ensure_group"], (change.group,))
    if change.frontiers:
        _move_frontiers(connection, change)
    for delivery in change.deliveries:
        _put_delivery(connection, delivery)
    for tally in (change.done, *(_bury(connection, each) for each in change.burials)):
        connection.execute(
            QUERIES["add_to_account"],
            (tally.processed, tally.filtered, tally.dead_lettered, change.group),
        )


def _account(connection: sqlite3.Connection, group: str) -> tuple[int, Tally]:
    row = connection.execute(QUERIES["group_account"], (group,)).fetchone()
    return (row[0], Tally(*row[1:])) if row else (0, Tally())


def _move_frontiers(connection: sqlite3.Connection, change: Change) -> None:
    moved = connection.execute(
        QUERIES["advance_group"], (change.group, change.expected_version)
    ).rowcount
    if not moved:
        raise StaleState(
            f"group {change.group} has moved on from version {change.expected_version}"
        )
    connection.executemany(
        QUERIES["move_frontier"],
        [
            (change.group, offset, partition.topic, partition.partition)
            for partition, offset in change.frontiers.items()
        ],
    )


def _put_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    query = "insert_delivery" if delivery.version == 1 else "update_delivery"
    if not connection.execute(QUERIES[query], delivery_to_row(delivery)).rowcount:
        raise StaleState(f"delivery {delivery.id} is no longer at version {delivery.version - 1}")
    if delivery.version == 1:
        connection.executemany(
            QUERIES["open_range"],
            [
                (delivery.group, part.first, part.last, delivery.id, part.topic, part.partition)
                for part in delivery.ranges
            ],
        )
    if delivery.state is State.DONE:
        connection.execute(QUERIES["close_ranges"], (delivery.id,))


def _bury(connection: sqlite3.Connection, burial: Burial) -> Tally:
    """Copy the wanted events of a delivery to the dead letters, and count both kinds."""
    connection.create_function("wanted", 1, lambda text: burial.wanted.matches(json.loads(text)))
    story = {
        "group": burial.delivery.group,
        "delivery": burial.delivery.id,
        "fingerprint": burial.fingerprint,
        "died_ms": burial.died_ms,
        "unfiltered": not burial.wanted,
    }
    places = [
        {"topic": part.topic, "partition": part.partition, "first": part.first, "last": part.last}
        for part in burial.delivery.ranges
    ]
    dead = sum(connection.execute(QUERIES["bury"], {**story, **place}).rowcount for place in places)
    return Tally(filtered=burial.delivery.size - dead, dead_lettered=dead)
