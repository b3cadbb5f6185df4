"""A window's rows made anew from the log, and put in the place of those that it has.

The order keeps live deliveries out of harm's way: first the replacements begin to watch the tables,
then the store says what the group has behind it. A delivery that had committed before the watch
began is made anew; one that commits later stops the replacement, which is then decided again; one
that comes after the replacement adds its rows. So every event is there once, whoever is faster.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce

from pyspark.sql import DataFrame

from dagster_bus.core.groups import Group
from dagster_bus.core.recomputing import Past
from dagster_bus.core.window import Window, Windows
from dagster_bus.errors import TableError, WindowChanged
from dagster_bus.spark.expecting import without_refused
from dagster_bus.spark.handover import Handed, OpenSession, handed_over, letters_handed_over
from dagster_bus.spark.processing import Work, failures_of, judged_rows, selection
from dagster_bus.spark.tables import Table, describe_windows, open_replacement

TRIES = 5
"""How often a replacement is decided anew when deliveries come in between."""

LONGEST_WINDOW = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What a window has now."""

    rows: int
    events: int
    filtered: int
    to_come: int
    """Events that are still to come with deliveries of their own."""
    dead: int
    """Events that were dead letters before."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Events that are dead letters since, by the reason."""
    dropped: Mapping[str, int] = field(default_factory=dict)


def recompute(
    open_session: OpenSession,
    work: Work,
    group: Group,
    window: Window,
    *,
    name: str,
    worker: str,
) -> Recomputed:
    """Replace a window's rows by what the pipeline makes of its events today. `name` must be new;
    repeated with the same one, what was replaced is left alone.

    Raises EventsGone, and changes nothing, if the log does not have all events any more."""
    for table in work.tables.values():
        _require_same_windows(table, window, group.config.windows)
    refused: Counter[str] = Counter()
    for tries_left in reversed(range(TRIES)):
        try:
            return _recompute(open_session, work, group, window, name, worker, refused)
        except WindowChanged:
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def _recompute(
    open_session: OpenSession,
    work: Work,
    group: Group,
    window: Window,
    name: str,
    worker: str,
    refused: Counter[str],
) -> Recomputed:
    replacements = {
        result: open_replacement(table, window.key, name=name)
        for result, table in work.tables.items()
    }
    past = group.past(window, lambda each: any(r.has(each.id) for r in replacements.values()))
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist().unpersist)
            return frame

        events = _events(open_session, work, past, kept)
        may_miss_some = bool(work.wanted or work.compacted)
        filtered = past.size - sum(each.count() for each in events) if may_miss_some else 0
        frames = [each.frame for each in events]
        judged = judged_rows(work, reduce(DataFrame.unionByName, frames), keep)
        written = {
            result: each.write(without_refused(judged.results[result], judged.refused))
            for result, each in replacements.items()
            if not each.done()
        }
        if judged.refused:
            failures = failures_of(judged.refused)
            group.refuse(past, failures, window, worker)
            refused.update(judged.refused.values())
        for result, files in written.items():
            replacements[result].commit(files, past.committed)
    return Recomputed(
        rows=sum(each.rows for each in written.values()),
        events=past.size,
        filtered=filtered,
        to_come=past.to_come,
        dead=past.dead,
        refused=refused,
        dropped=judged.dropped,
    )


def _events(open_session: OpenSession, work: Work, past: Past, kept: ExitStack) -> list[Handed]:
    """The events as the pipeline sees them: those of the log, and letters that were sent back."""
    asked = selection(work, past.ranges)
    logged = kept.enter_context(handed_over(open_session, asked))
    if not past.events:
        return [logged]
    return [logged, letters_handed_over(logged.frame.sparkSession, asked, past.events)]


def _require_same_windows(table: Table, window: Window, windows: Windows) -> None:
    """Refuse a table that was divided in another way around this time: the same events may have
    rows there that would not be replaced."""
    begin = date.fromisoformat(window.key[:10])
    for each in describe_windows(table):
        other = each.window
        if windows.find(other) is None and _is_near(other, begin, window):
            raise TableError(
                f"the table {table.path} has rows in {other}, which is none of the group's "
                f"windows: they were made before `window` was changed, and window {window.key} "
                "may have some of their events. Nothing was replaced; give the group another "
                "table, and fill it with a replay"
            )


def _is_near(other: str, begin: date, window: Window) -> bool:
    length = timedelta(milliseconds=window.end_ms - window.start_ms)
    try:
        day = date.fromisoformat(other[:10])
    except ValueError:
        return True
    longest = LONGEST_WINDOW if len(other) == len("2026-01-31") else timedelta(days=1)
    return begin - longest <= day <= begin + length + timedelta(days=1)
