"""One delivery from the log to the tables: read, filter, pipeline, expectations, write, commit.

What is refused is reported before a table gets the rest. So a worker that dies in between leaves a
delivery without the refused events, and one that dies after the commit a delivery whose rows are
all there: its successor can tell the two apart.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Event
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
from dagster_bus.spark.frames import frame_of, read_events
from dagster_bus.spark.pipeline import Pipeline, Produced, apply_pipeline
from dagster_bus.spark.tables import Sink, Table, Written, open_sink

OpenSession = Callable[[], SparkSession]


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


def is_in_table(work: Work, delivery: Delivery) -> bool:
    """Whether an earlier worker brought the delivery into a table; none can from now on."""
    sinks = [open_sink(table, delivery) for table in work.tables.values()]
    return any(sink.committed() for sink in sinks)


def process(spark: SparkSession, work: Work, keeper: Keeper) -> Result:
    """Bring a delivery's rows into its tables, once. What is left of the delivery afterwards, the
    keeper knows; it is done if all of its events were refused."""
    sinks = {name: open_sink(table, keeper.held) for name, table in work.tables.items()}
    with _noted(keeper.held), ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist().unpersist)
            return frame

        events = events_of(spark, work, keeper, keeper.held.ranges)
        filtered = keeper.held.size - events.count() if _may_miss_some(work, keeper.held) else 0
        if all(sink.committed() for sink in sinks.values()):
            return Result(filtered=filtered, repeated=True)
        judged = judged_rows(work, events, keep)
        refused = judged.refused
        written: list[Written] = []
        if not refused or keeper.report(_refusal(refused)).state is not State.DONE:
            written = _committed(sinks, judged, refused, keeper)
    return Result(
        rows=sum(each.rows for each in written),
        files=sum(each.file_count for each in written),
        filtered=filtered,
        refused=Counter(refused.values()),
        dropped=judged.dropped,
    )


def events_of(spark: SparkSession, work: Work, keeper: Keeper, ranges: Ranges) -> DataFrame:
    """Some of a delivery's events, as the pipeline sees them."""
    with_corrupt = work.corrupt is not None
    if keeper.held.redriven:
        letters = _among(keeper.events(), ranges)
        return frame_of(spark, letters, work.columns, with_corrupt=with_corrupt)
    return read_events(
        spark, work.store, ranges, work.wanted, work.columns, with_corrupt=with_corrupt
    )


def judged_rows(work: Work, events: DataFrame, keep: Keep) -> Judged:
    """What comes of some events, and which of them are refused."""
    corrupt: dict[Place, str] = {}
    if work.corrupt == "dead_letter":
        events, corrupt = split_off_corrupt(events, keep)
    judged = judge(produce(work, events), work.expectations, keep)
    judged.refused = corrupt | judged.refused
    return judged


def produce(work: Work, events: DataFrame) -> Produced:
    return apply_pipeline(work.pipeline, events, name=work.name, names=tuple(work.tables))


def _committed(
    sinks: Mapping[str, Sink], judged: Judged, refused: Mapping[Place, str], keeper: Keeper
) -> list[Written]:
    """Write all results, and then make them visible, one after the other. If this ends midway, the
    next worker finds out which tables have theirs."""
    written = {
        name: sink.write(without_refused(judged.results[name], refused))
        for name, sink in sinks.items()
        if not sink.committed()
    }
    keeper.check()
    for name, files in written.items():
        sinks[name].commit(files)
    return [*written.values()]


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


def _among(events: Iterable[Event], ranges: Ranges) -> list[Event]:
    wanted = {
        (part.topic, part.partition, offset)
        for part in ranges
        for offset in range(part.first, part.last + 1)
    }
    return [event for event in events if (event.topic, event.partition, event.offset) in wanted]


@contextmanager
def _noted(held: Delivery) -> Iterator[None]:
    """Have an error say what it happened to."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in group {held.group}, delivery {held.id}")
        raise
