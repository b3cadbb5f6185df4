"""How a delivery's events reach Spark.

Few of them this process reads itself, and they travel with the query: no process has to be started
for them. Many are staged as files if the store is a file too, which all who work with it can reach,
and that while Spark starts; else Spark's executors read the store through the data source. The rows
are the same each time.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_bus.core.event import Event
from dagster_bus.core.ranges import count
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicPartition
from dagster_bus.spark.frames import CORRUPT, EVENT, frame_of, read_events, staged_frame
from dagster_bus.spark.source import PIECE
from dagster_bus.stores import is_mongo, open_store, sqlite_path
from dagster_bus.stores.arrow import MAX_BATCH_BYTES, require_complete
from dagster_bus.stores.scratch import scratch_folder
from dagster_bus.stores.staging import Counts, Job, staging

FEW = PIECE
"""More events than this are worth several tasks."""

OpenSession = Callable[[], SparkSession]
"""Spark may take seconds to start, so it is started when it is needed."""

GLOB = frozenset("{}[]*?\\")
"""Spark takes these in a path for a pattern."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events, and as which columns."""

    store: str
    ranges: Sequence[OffsetRange]
    wanted: EventFilter = field(default_factory=EventFilter)
    columns: dict[str, str] = field(default_factory=dict)
    with_corrupt: bool = False


@dataclass(frozen=True, slots=True)
class Handed:
    """Events in Spark's hands."""

    frame: DataFrame
    known: int | None = None
    """How many they are, if that is known already."""

    def count(self) -> int:
        return self.frame.count() if self.known is None else self.known


@contextmanager
def handed_over(open_session: OpenSession, asked: Selection) -> Iterator[Handed]:
    """The events, which Spark can read for as long as the block lasts."""
    with ExitStack() as kept:
        if (events := _few(asked)) is not None:
            yield letters_handed_over(open_session(), asked, events)
        elif (root := _scratch_beside(asked.store)) is not None:
            folder = kept.enter_context(scratch_folder(root))
            counts = kept.enter_context(staging(_job(asked, folder), asked.ranges))
            yield _staged(open_session(), asked, folder, counts())
        else:
            yield Handed(
                read_events(
                    open_session(),
                    asked.store,
                    asked.ranges,
                    asked.wanted,
                    asked.columns,
                    with_corrupt=asked.with_corrupt,
                )
            )


def letters_handed_over(
    spark: SparkSession, asked: Selection, letters: Collection[Event]
) -> Handed:
    """Events that are at hand, as dead letters that were sent back are."""
    frame = frame_of(spark, letters, asked.columns, with_corrupt=asked.with_corrupt)
    return Handed(frame, len(letters))


def _few(asked: Selection) -> list[Event] | None:
    """The events, if they are few and small."""
    if count(asked.ranges) > FEW:
        return None
    room = MAX_BATCH_BYTES
    passed = []
    with open_store(asked.store, create=False) as store:
        for span in asked.ranges:
            offsets = []
            for event in store.iterate(span):
                offsets.append(event.offset)
                if asked.wanted.matches(event.attributes, event.key):
                    passed.append(event)
                    room -= event.size
                if room < 0:
                    return None
            # Asked last: what is missing among the events, these account for by now.
            held = store.bounds([span.topic])[TopicPartition(span.topic, span.partition)]
            require_complete([pa.array(offsets, pa.int64())], span, held.first, held.compacted_to)
    return passed


def _scratch_beside(store: str) -> Path | None:
    """Where files can be staged for whoever reads this store: beside it, if it is a file."""
    if is_mongo(store):
        return None
    file = Path(sqlite_path(store)).absolute()
    return None if GLOB & {*str(file)} else file.with_name(f"{file.name}-scratch")


def _job(asked: Selection, folder: Path) -> Job:
    corrupt = CORRUPT if asked.with_corrupt else None
    return Job(asked.store, str(folder), asked.wanted, asked.columns, EVENT, corrupt)


def _staged(spark: SparkSession, asked: Selection, folder: Path, counts: Counts) -> Handed:
    frame = staged_frame(spark, folder, counts, asked.columns, with_corrupt=asked.with_corrupt)
    return Handed(frame, sum(counts.values()))
