"""Streams of events: Spark keeps the offsets in its checkpoint, and asks how far a batch may go."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from dagster_bus.core.store import Bounds, Store
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import UsageError
from dagster_bus.spark.source.columns import Shape
from dagster_bus.spark.source.options import Options, Place
from dagster_bus.spark.source.places import (
    Ends,
    available,
    chosen_topics,
    offsets_of,
    ranges_between,
)
from dagster_bus.spark.source.reading import COMMON, Query, query, read_task
from dagster_bus.spark.source.splitting import mean_bytes, split
from dagster_bus.stores import open_store

if TYPE_CHECKING:
    import pyarrow as pa

STREAMING = (*COMMON, "maxOffsetsPerTrigger")
BATCHES_ONLY = {
    "endingOffsets": "for batches, as a stream has no end",
    "endingTimestamp": "for batches, as a stream has no end",
    "ranges": "for batches",
}

Offset = dict[str, dict[str, int]]
"""What a checkpoint keeps: by topic and partition, the offset of the next event to read."""


def stream_query(options: Options) -> tuple[Query, int | None]:
    """What to read, and how many events a batch may have."""
    options.require_known(STREAMING, BATCHES_ONLY)
    return query(options, Place("latest")), options.number("maxOffsetsPerTrigger", 1)


class BusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, asked: Query, shape: Shape, most: int | None) -> None:
        self._query = asked
        self._shape = shape
        self._most = most
        self._target: Ends | None = None
        """Where a query ends that is to read what is there now."""
        self._store: Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}

    def initialOffset(self) -> Offset:
        asked = self._query
        loss = asked.fail_on_data_loss
        return _written(
            offsets_of(asked.start, self._open(), self._bounds(), fail_on_data_loss=loss)
        )

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {at: each.end for at, each in self._bounds().items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        return _written({at: each.end for at, each in self._bounds().items()})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        bounds = self._bounds()
        _require_there({at: n for at, n in _read(start).items() if at in bounds}, bounds)
        begin = self._begin(start, bounds)
        ends = {at: each.end for at, each in bounds.items()}
        if self._target is not None:
            ends = {at: min(end, self._target.get(at, begin[at])) for at, end in ends.items()}
        ends = {at: max(end, begin[at]) for at, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = limited(begin, ends, limit.max_rows)
        return _written({**_read(start), **ends})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        bounds = self._bounds(_read(end))
        _require_there(_read(end), bounds)
        begin = available(
            self._begin(start, bounds), bounds, fail_on_data_loss=self._query.fail_on_data_loss
        )
        ends = {at: offset for at, offset in _read(end).items() if at in begin}
        ranges = ranges_between(begin, ends)
        least, sizes = self._query.least_tasks, mean_bytes(bounds)
        return [
            InputPartition(task) for task in split(ranges, least_tasks=least, event_bytes=sizes)
        ]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return read_task(self._query, self._shape, partition.value)

    def stop(self) -> None:
        if self._store is not None:
            self._store.close()

    def _open(self) -> Store:
        if self._store is None:
            self._store = open_store(self._query.store, create=False)
        return self._store

    def _bounds(
        self, known: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, Bounds]:
        """Of the topics that are chosen now, or of those in an offset."""
        store = self._open()
        if known is not None:
            names = sorted({at.topic for at in known})
        else:
            names = [topic.name for topic in chosen_topics(self._query.patterns, store)]
        return store.bounds(names)

    def _begin(self, start: Offset, bounds: Mapping[TopicPartition, Bounds]) -> Ends:
        """Where a batch begins: a topic that came later begins with its first event."""
        known = _read(start)
        return {at: known.get(at, each.first) for at, each in bounds.items()}


def _require_there(ends: Ends, bounds: Mapping[TopicPartition, Bounds]) -> None:
    """Offsets of a checkpoint are such as the store has given."""
    for at, offset in ends.items():
        if at not in bounds or bounds[at].end < offset:
            raise UsageError(
                f"the checkpoint has offset {offset} of {at.topic}/{at.partition}, which the store "
                "does not have: is it another store? Begin with a new checkpoint"
            )


def limited(begin: Mapping[TopicPartition, int], ends: Ends, most: int) -> Ends:
    """Ends of a batch of at most so many events, of which each partition has its share."""
    waiting = {at: ends[at] - begin[at] for at in sorted(ends)}
    total = sum(waiting.values())
    if total <= most:
        return ends
    shares = {at: count * most // total for at, count in waiting.items()}
    left = most - sum(shares.values())
    for at in sorted(waiting, key=lambda at: shares[at] - waiting[at] * most / total):
        if left and shares[at] < waiting[at]:
            shares[at] += 1
            left -= 1
    return {at: begin[at] + share for at, share in shares.items()}


def _written(ends: Mapping[TopicPartition, int]) -> Offset:
    offset: Offset = {}
    for at in sorted(ends):
        offset.setdefault(at.topic, {})[str(at.partition)] = ends[at]
    return offset


def _read(offset: Offset) -> Ends:
    return {
        TopicPartition(topic, int(partition)): each
        for topic, partitions in offset.items()
        for partition, each in partitions.items()
    }
