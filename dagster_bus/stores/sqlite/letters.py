"""Dead letters in the embedded store: burying events, finding, redriving and purging letters.

Functions over an open transaction; the store begins and ends it.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from dagster_bus.core.event import Event, event_from_tuple, is_expired
from dagster_bus.core.mirroring import mirrored
from dagster_bus.core.ranges import Place
from dagster_bus.core.store import Burial, DeadLetter, LetterQuery, LetterState, Redrive, Tally
from dagster_bus.core.topic import OffsetRange
from dagster_bus.errors import StaleState
from dagster_bus.stores.sqlite import log
from dagster_bus.stores.sqlite.connection import load_queries
from dagster_bus.stores.sqlite.ends import Ends
from dagster_bus.stores.sqlite.rows import dead_letter_from_row

QUERIES = load_queries()

LARGEST_NUMBER = (1 << 63) - 1

CONDITIONS = {
    "state": "dead_letters.state = :state",
    "fingerprint": "fingerprint = :fingerprint",
    "topic": "topic = :topic",
    "died_from_ms": "died_ms >= :died_from_ms",
    "died_before_ms": "died_ms < :died_before_ms",
    "ids": "dead_letters.id IN (SELECT value FROM json_each(:ids))",
}
"""What each field of a query asks for, if it is given."""


def bury(connection: sqlite3.Connection, burial: Burial) -> Tally:
    """Copy the events of a delivery to the dead letters, and count how each of them ended."""
    delivery = burial.delivery
    story = {
        "group": delivery.group,
        "delivery": delivery.id,
        "fingerprint": burial.fingerprint,
        "died_ms": burial.died_ms,
    }
    (last_id,) = connection.execute(QUERIES["last_letter"]).fetchone()
    places = [{**story, **_place(part)} for part in delivery.ranges]
    if delivery.redriven:
        dead = _total(connection, "bury_again", places)
        expired = 0
    else:
        connection.create_function("fate", 4, _fate(burial))
        expired = sum(
            connection.execute(QUERIES["expired_in"], place).fetchone()[0] for place in places
        )
        all_die = not burial.wanted and not expired
        dead = _total(connection, "bury", [{**place, "all_die": all_die} for place in places])
    count(connection, delivery.group, {burial.fingerprint: dead})
    if burial.mirrors and dead:
        _mirror(connection, burial, last_id or 0)
    return Tally(filtered=delivery.size - dead - expired, dead_lettered=dead, expired=expired)


def _mirror(connection: sqlite3.Connection, burial: Burial, after: int) -> None:
    """Append the letters that were just buried to the mirrors of their topics."""
    rows = connection.execute(QUERIES["letters_after"], (after,))
    batches = mirrored(
        list(map(event_from_tuple, rows)),
        mirrors=burial.mirrors,
        group=burial.delivery.group,
        fingerprint=burial.fingerprint,
        errors=burial.delivery.errors,
        now_ms=burial.died_ms,
    )
    if batches:
        log.append(connection, Ends(), batches, burial.died_ms)


def _fate(burial: Burial) -> Callable[[str, str | None, int, int | None], str]:
    def fate(attributes: str, key: str | None, ts: int, ttl_s: int | None) -> str:
        if burial.wanted and not burial.wanted.matches(json.loads(attributes), key):
            return "filtered"
        return "expired" if is_expired(ts, ttl_s, burial.died_ms) else "dead"

    return fate


def _total(connection: sqlite3.Connection, query: str, asked: Sequence[dict[str, Any]]) -> int:
    return sum(connection.execute(QUERIES[query], each).rowcount for each in asked)


def count(connection: sqlite3.Connection, group: str, more: dict[str, int]) -> None:
    """Add to the numbers of dead letters by fingerprint."""
    rows = [(group, fingerprint, number) for fingerprint, number in more.items() if number]
    connection.executemany(QUERIES["count_letters"], rows)


def redrive(connection: sqlite3.Connection, group: str, redrives: Sequence[Redrive]) -> None:
    """Mark letters as sent back, all of which must be dead."""
    fewer: Counter[str] = Counter()
    for each in redrives:
        asked = (each.payload, each.letter, group)
        row = connection.execute(QUERIES["redrive"], asked).fetchone()
        if row is None:
            raise StaleState(f"letter {each.letter} of group {group} is not dead")
        fewer[row[0]] -= 1
    count(connection, group, fewer)


def find(
    connection: sqlite3.Connection, query: LetterQuery, limit: int, before: int | None
) -> list[DeadLetter]:
    given = {
        "state": query.state.value if query.state else None,
        "fingerprint": query.fingerprint,
        "topic": query.topic,
        "died_from_ms": query.died_from_ms,
        "died_before_ms": query.died_before_ms,
        "ids": None if query.ids is None else json.dumps(query.ids),
    }
    text = QUERIES["dead_letters"].format(
        condition=condition(name for name in given if given[name])
    )
    asked = {**given, "group": query.group, "limit": limit, "before": before or LARGEST_NUMBER}
    return [dead_letter_from_row(row) for row in connection.execute(text, asked)]


def condition(names: Iterable[str]) -> str:
    """The condition of a query that asks for some of its fields."""
    of_group = "dead_letters.group_name = :group AND dead_letters.id < :before"
    return " AND ".join([of_group, *(CONDITIONS[name] for name in names)])


def redriven(
    connection: sqlite3.Connection, group: str, spans: Sequence[OffsetRange]
) -> list[Event]:
    events: list[Event] = []
    for span in spans:
        rows = connection.execute(QUERIES["redriven"], {"group": group, **_place(span)})
        events += map(event_from_tuple, rows)
    return events


def purge(connection: sqlite3.Connection, group: str, died_before_ms: int, limit: int) -> int:
    old = {"group": group, "before": died_before_ms, "limit": limit}
    dead = _oldest(connection, {**old, "state": LetterState.DEAD.value})
    fewer = Counter(fingerprint for _, fingerprint, *_ in dead)
    count(connection, group, {each: -number for each, number in fewer.items()})
    spare = []
    if len(dead) < limit:
        needed = _needed(connection, group)
        redriven = _all_oldest(connection, {**old, "state": LetterState.REDRIVEN.value})
        unneeded = (row for row in redriven if not needed(row[3:]))
        spare = list(islice(unneeded, limit - len(dead)))
    ids = [(row[0],) for row in (*dead, *spare)]
    connection.executemany(QUERIES["delete_letter"], ids)
    return len(ids)


def _all_oldest(connection: sqlite3.Connection, asked: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Letters that died before a time, those that died first first, page by page."""
    after = {"after_ms": -1, "after_id": 0}
    while page := _oldest(connection, asked, after):
        yield from page
        after = {"after_ms": page[-1][2], "after_id": page[-1][0]}


def _oldest(
    connection: sqlite3.Connection, asked: dict[str, Any], after: dict[str, int] | None = None
) -> list[tuple[Any, ...]]:
    start = after or {"after_ms": -1, "after_id": 0}
    return connection.execute(QUERIES["oldest_letters"], {**asked, **start}).fetchall()


def _needed(connection: sqlite3.Connection, group: str) -> Callable[[Sequence[Any]], bool]:
    """Tells whether an open delivery still has to read the redriven letter of a place."""
    rows = connection.execute(QUERIES["redriven_ranges"], (group,)).fetchall()
    spans = [OffsetRange(*part) for (text,) in rows for part in json.loads(text)]

    def is_needed(place: Sequence[Any]) -> bool:
        at = Place(*place)
        return any(
            (part.topic, part.partition) == at[:2] and part.first <= at.offset <= part.last
            for part in spans
        )

    return is_needed


def _place(part: OffsetRange) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "first": part.first,
        "last": part.last,
    }
