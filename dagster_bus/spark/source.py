"""The bus as a Spark data source: `spark.read.format("dagster_bus")`.

Options: `store`, its address; `ranges`, the offset ranges as JSON lists of topic, partition, first
and last; `filter`, the wanted attributes as JSON. The driver only plans; executors open the store
themselves.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.stores.arrow import pieces, read_batches

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
