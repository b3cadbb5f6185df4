"""One delivery from the log to the table: read, filter, pipeline, write, commit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Event
from dagster_bus.core.topic import EventFilter
from dagster_bus.spark.frames import frame_of, read_events
from dagster_bus.spark.pipeline import Pipeline, apply_pipeline
from dagster_bus.spark.tables import Table, open_sink


@dataclass(frozen=True, slots=True)
class Work:
    """What a group does with its events."""

    name: str
    store: str
    wanted: EventFilter
    columns: dict[str, str]
    pipeline: Pipeline
    table: Table
    compacted: bool = False
    """Whether compaction may have taken events out; they are counted as filtered."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a delivery's events."""

    rows: int
    files: int
    filtered: int
    repeated: bool
    """The table held this delivery already: an earlier worker committed and then died."""


def is_in_table(work: Work, delivery: Delivery) -> bool:
    """Whether an earlier worker brought the delivery into the table; none can from now on."""
    return open_sink(work.table, delivery).committed()


def process(
    spark: SparkSession,
    work: Work,
    delivery: Delivery,
    check_lease: Callable[[], None],
    letters: Callable[[], Iterable[Event]] = tuple,
) -> Result:
    """Bring a delivery's rows into the table, once. `check_lease` raises if the lease is lost;
    `letters` gives the events of a redriven delivery, which are not read from the log."""
    sink = open_sink(work.table, delivery)
    filtered = 0
    if delivery.redriven:
        events = frame_of(spark, letters(), work.columns)
    else:
        events = read_events(spark, work.store, delivery.ranges, work.wanted, work.columns)
        if work.wanted or work.compacted:
            filtered = delivery.size - events.count()
    if sink.committed():
        return Result(rows=0, files=0, filtered=filtered, repeated=True)
    written = sink.write(apply_pipeline(work.pipeline, events, name=work.name))
    check_lease()
    sink.commit(written)
    return Result(rows=written.rows, files=written.file_count, filtered=filtered, repeated=False)
