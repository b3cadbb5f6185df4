"""The bus as a Spark data source: `spark.read.format("dagster_bus")`.

Options: `store`, its address; `ranges`, the offset ranges as JSON lists of topic, partition, first
and last; `filter`, the wanted attributes as JSON. The driver only plans; executors open the store
themselves.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from dagster_bus.core.event import Event
from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.schemas.tree import quoted
from dagster_bus.stores.arrow import pieces, read_batches, to_table

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "dagster_bus"
ENVELOPE = (
    "id string, ts timestamp, topic string, partition int, offset bigint, key string, "
    "source string, schema_version int, attributes string, priority int, payload string"
)
PIECE = 10_000
"""Events in one task: large enough to be worth starting, small enough to occupy all cores."""


class BusDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ENVELOPE

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002
        ranges = [OffsetRange(*part) for part in json.loads(self.options["ranges"])]
        filter_ = json.loads(self.options.get("filter", "{}"))
        wanted = EventFilter(
            filter_.get("equals", {}),
            tuple(filter_.get("exists", ())),
            tuple(filter_.get("keys", ())),
        )
        return BusReader(self.options["store"], ranges, wanted)


class BusReader(DataSourceReader):
    def __init__(self, store: str, ranges: Sequence[OffsetRange], wanted: EventFilter) -> None:
        self._store = store
        self._ranges = ranges
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(piece) for piece in pieces(self._ranges, PIECE)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return read_batches(self._store, partition.value, self._wanted)


def read_events(
    spark: SparkSession,
    store: str,
    ranges: Sequence[OffsetRange],
    wanted: EventFilter,
    columns: dict[str, str],
) -> DataFrame:
    """Events as a pipeline sees them: the payload's columns, and the envelope in `_event`."""
    spark.dataSource.register(BusDataSource)
    raw = (
        spark.read.format(FORMAT)
        .option("store", store)
        .option("ranges", json.dumps([[r.topic, r.partition, r.first, r.last] for r in ranges]))
        .option("filter", json.dumps(asdict(wanted)))
        .load()
    )
    return _as_pipelines_see_them(raw, columns)


def frame_of(spark: SparkSession, events: Iterable[Event], columns: dict[str, str]) -> DataFrame:
    """The same of events that are at hand: dead letters that were sent back."""
    return _as_pipelines_see_them(spark.createDataFrame(to_table(events)), columns)


def _as_pipelines_see_them(raw: DataFrame, columns: dict[str, str]) -> DataFrame:
    envelope = F.struct(*(F.col(name) for name in raw.columns)).alias("_event")
    if not columns:
        return raw.select(envelope)
    ddl = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
    parsed = raw.select(envelope, F.from_json("payload", ddl).alias("_payload"))
    return parsed.select(
        *(F.col(f"_payload.{quoted(name)}").alias(name) for name in columns), "_event"
    )
