"""One delivery from the log to the tables: read, filter, pipeline, expectations, write, commit.
What is to be published is handed to whoever settles the delivery, to be appended by that.

What is refused is reported before a table gets the rest. So a worker that dies in between leaves a
delivery without the refused events, and one that dies after the commit a delivery whose rows are
all there: its successor can tell the two apart.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Batch
from dagster_bus.core.lease import Keeper
from dagster_bus.core.ranges import Place, Ranges, covering
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.core.topic import EventFilter
from dagster_bus.errors import EventRefused
from dagster_bus.spark.expecting import (
    Expectation,
    Judged,
    Keep,
    judge,
    split_off_corrupt,
    without_refused,
)
from dagster_bus.spark.handover import (
    Handed,
    OpenSession,
    Selection,
    handed_over,
    letters_handed_over,
)
from dagster_bus.spark.pipeline import ONLY, Pipeline, Produced, apply_pipeline
from dagster_bus.spark.publishing import only, prepare_rows
from dagster_bus.spark.tables import Sink, Table, Written, open_sink, read_written


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a group does with its events."""

    name: str
    """The pipeline, as its author knows it."""
    store: str
    wanted: EventFilter = field(default_factory=EventFilter)
    columns: dict[str, str]
    pipeline: Pipeline
    tables: Mapping[str, Table]
    """By the names of the pipeline's results."""
    expectations: tuple[Expectation, ...] = ()
    corrupt: str | None = None
    """What becomes of payloads that do not fit the columns."""
    compacted: bool = False
    """Whether compaction may have taken events out; they are counted as filtered."""
    publish: str | None = None
    """The topic that the rows go to, whether there is a table or not."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a delivery's events."""

    rows: int = 0
    files: int = 0
    filtered: int = 0
    repeated: bool = False
    """The tables held this delivery already: an earlier worker committed and then died."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Events that went to the dead letters, by the reason."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows that were left out, by the condition."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of the rows, with their types, if there is one result."""
    outgoing: tuple[Batch, ...] = ()
    """What is to be published as the delivery is settled."""

    @property
    def published(self) -> int:
        return sum(batch.length for batch in self.outgoing)


def is_in_table(work: Work, delivery: Delivery) -> bool:
    """Whether an earlier worker brought the delivery into a table; none can from now on."""
    sinks = [open_sink(table, delivery) for table in work.tables.values()]
    return any(sink.committed() for sink in sinks)


def process(open_session: OpenSession, work: Work, keeper: Keeper) -> Result:
    """Bring a delivery's rows into its tables, once. What is left of the delivery afterwards, the
    keeper knows; it is done if all of its events were refused."""
    sinks = {name: open_sink(table, keeper.held) for name, table in work.tables.items()}
    with _noted(work, keeper.held), ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist().unpersist)
            return frame

        repeated = bool(sinks) and all(sink.committed() for sink in sinks.values())
        may_miss_some = _may_miss_some(work, keeper.held)
        if repeated and not may_miss_some and work.publish is None:
            return Result(repeated=True)
        handed = kept.enter_context(events_of(open_session, work, keeper))
        spark = handed.frame.sparkSession
        filtered = keeper.held.size - handed.count() if may_miss_some else 0
        if repeated:
            again = _outgoing_again(spark, work, sinks, handed.frame, keep, keeper)
            return Result(filtered=filtered, repeated=True, outgoing=again)
        judged = judged_rows(work, handed.frame, keep)
        refused = judged.refused
        written: dict[str, Written] = {}
        outgoing: tuple[Batch, ...] = ()
        columns: dict[str, str] = {}
        if not refused or keeper.report(_refusal(refused)).state is not State.DONE:
            rows = {name: without_refused(frame, refused) for name, frame in judged.results.items()}
            written = _written(sinks, rows)
            columns = _columns(rows)
            outgoing = _outgoing(spark, work, written, rows, keeper)
            _commit(sinks, written, keeper)
    return Result(
        rows=sum(each.rows for each in written.values()),
        files=sum(each.file_count for each in written.values()),
        filtered=filtered,
        refused=Counter(refused.values()),
        dropped=judged.dropped,
        columns=columns,
        outgoing=outgoing,
    )


def selection(work: Work, ranges: Ranges) -> Selection:
    return Selection(work.store, ranges, work.wanted, work.columns, work.corrupt is not None)


@contextmanager
def events_of(open_session: OpenSession, work: Work, keeper: Keeper) -> Iterator[Handed]:
    """A delivery's events, as the pipeline sees them."""
    asked = selection(work, keeper.held.ranges)
    if keeper.held.redriven:
        yield letters_handed_over(open_session(), asked, [*keeper.events()])
    else:
        with handed_over(open_session, asked) as events:
            yield events


def judged_rows(work: Work, events: DataFrame, keep: Keep) -> Judged:
    """What comes of some events, and which of them are refused."""
    corrupt: dict[Place, str] = {}
    if work.corrupt == "dead_letter":
        events, corrupt = split_off_corrupt(events, keep)
    judged = judge(produce(work, events), work.expectations, keep)
    judged.refused = corrupt | judged.refused
    return judged


def produce(work: Work, events: DataFrame) -> Produced:
    return apply_pipeline(
        work.pipeline, events, name=work.name, names=tuple(work.tables) or (ONLY,)
    )


def rows_to_publish(work: Work, produced: Produced, keep: Keep) -> DataFrame:
    """What is to be published of a pipeline's one result."""
    judged = judge(produced, work.expectations, keep)
    return without_refused(only(judged.results), judged.refused)


def _columns(rows: Mapping[str, DataFrame]) -> dict[str, str]:
    if len(rows) != 1:
        return {}
    return {field.name: field.dataType.simpleString() for field in only(rows).schema.fields}


def _written(sinks: Mapping[str, Sink], rows: Mapping[str, DataFrame]) -> dict[str, Written]:
    """Have all results written that are not in their tables yet."""
    return {name: sink.write(rows[name]) for name, sink in sinks.items() if not sink.committed()}


def _commit(sinks: Mapping[str, Sink], written: Mapping[str, Written], keeper: Keeper) -> None:
    """Make what was written visible, one table after the other. If this ends midway, the next
    worker finds out which tables have theirs."""
    keeper.check()
    for name, files in written.items():
        sinks[name].commit(files)


def _outgoing(
    spark: SparkSession,
    work: Work,
    written: Mapping[str, Written],
    rows: Mapping[str, DataFrame],
    keeper: Keeper,
) -> tuple[Batch, ...]:
    """What the table is to get, as events: read from what was written for it, as a pipeline may
    give something else when it is asked again."""
    if work.publish is None:
        return ()
    chosen = only(rows)
    for name, files in written.items():
        chosen = read_written(spark, work.tables[name], files).select(*chosen.columns)
    return prepare_rows(chosen, work.publish, keeper)


def _outgoing_again(
    spark: SparkSession,
    work: Work,
    sinks: Mapping[str, Sink],
    events: DataFrame,
    keep: Keep,
    keeper: Keeper,
) -> tuple[Batch, ...]:
    """What the table has already and nobody has published, as the worker before was lost."""
    if work.publish is None:
        return ()
    rows = rows_to_publish(work, produce(work, events), keep)
    found = {name: sink.brought() for name, sink in sinks.items()}
    there = {name: files for name, files in found.items() if files is not None}
    return _outgoing(spark, work, there, {ONLY: rows}, keeper)


def _refusal(refused: Mapping[Place, str]) -> Report:
    return Report(refused=tuple(failures_of(refused)))


def failures_of(refused: Mapping[Place, str]) -> list[Failed]:
    """Events of one reason die together, and each of them alone."""
    by_reason: dict[str, list[Place]] = {}
    for place, reason in refused.items():
        by_reason.setdefault(reason, []).append(place)
    return [Failed(covering(places), EventRefused(reason)) for reason, places in by_reason.items()]


def _may_miss_some(work: Work, held: Delivery) -> bool:
    return not held.redriven and bool(work.wanted or work.compacted)


@contextmanager
def _noted(work: Work, held: Delivery) -> Iterator[None]:
    """Have an error say what it happened to."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in pipeline {work.name}, group {held.group}, delivery {held.id}")
        raise
