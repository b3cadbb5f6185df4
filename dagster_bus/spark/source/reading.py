"""A query's reader: the driver plans ranges, executors read them as Arrow batches."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.errors import UsageError
from dagster_bus.spark.source.columns import Shape
from dagster_bus.spark.source.filters import Condition, condition, narrowed
from dagster_bus.spark.source.options import Options, Place
from dagster_bus.spark.source.places import chosen_topics, offsets_of, ranges_between
from dagster_bus.spark.source.splitting import Task, mean_bytes, split
from dagster_bus.stores import open_store
from dagster_bus.stores.arrow import read_batches

if TYPE_CHECKING:
    import pyarrow as pa

PATTERNS = "names or patterns of topics, such as orders.*, separated by commas"
COMMON = (
    "store", "config", "topics", "startingOffsets", "startingTimestamp", "minPartitions",
    "failOnDataLoss", "typed", "filter",
)  # fmt: skip
READING = (*COMMON, "endingOffsets", "endingTimestamp", "ranges")
STREAMS_ONLY = {"maxOffsetsPerTrigger": "for streams"}


@dataclass(frozen=True, slots=True)
class Query:
    """What to read, by the options."""

    store: str
    patterns: tuple[str, ...]
    start: Place
    end: Place
    least_tasks: int
    fail_on_data_loss: bool
    wanted: EventFilter
    ranges: tuple[OffsetRange, ...] | None = None
    """Exactly these, instead of topics and places."""


def query(options: Options, default_start: Place) -> Query:
    """Raises UsageError for options that do not say what to read."""
    ranges = _ranges(options)
    start, end = options.place("starting", default_start), options.place("ending", _LATEST)
    return Query(
        store=options.store(),
        patterns=() if ranges is not None else patterns(options),
        start=start,
        end=end,
        least_tasks=options.number("minPartitions", 1) or 1,
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        wanted=_event_filter(options),
        ranges=ranges,
    )


def batch_query(options: Options) -> Query:
    options.require_known(READING, STREAMS_ONLY)
    asked = query(options, Place("earliest"))
    if asked.start.word == "latest":
        raise UsageError("option startingOffsets: a batch that begins at the latest reads nothing")
    if asked.end.word == "earliest":
        raise UsageError("option endingOffsets: a batch that ends at the earliest reads nothing")
    return asked


def patterns(options: Options) -> tuple[str, ...]:
    given = options.required("topics", PATTERNS)
    return tuple(pattern.strip() for pattern in given.split(",") if pattern.strip())


class BusReader(DataSourceReader):
    def __init__(self, asked: Query, shape: Shape) -> None:
        self._query = asked
        self._shape = shape
        self._conditions: list[Condition] = []
        self.pushFilters = _Offer(self._push)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in self._tasks()]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return read_task(self._query, self._shape, partition.value)

    def _push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take what ranges can answer; the rest is handed back."""
        found = [(filter_, condition(filter_)) for filter_ in filters]
        self._conditions = [each for _, each in found if each is not None]
        return [filter_ for filter_, each in found if each is None]

    def _tasks(self) -> list[Task]:
        asked = self._query
        if asked.ranges is not None and not any(each.column == "ts" for each in self._conditions):
            ranges = narrowed(asked.ranges, self._conditions, lambda *_: {})
            return split(ranges, least_tasks=asked.least_tasks)
        with open_store(asked.store, create=False) as store:
            if asked.ranges is not None:
                ranges = list(asked.ranges)
                names = sorted({span.topic for span in ranges})
                bounds = store.bounds(names)
            else:
                names = [topic.name for topic in chosen_topics(asked.patterns, store)]
                bounds = store.bounds(names)
                loss = asked.fail_on_data_loss
                start = offsets_of(asked.start, store, bounds, fail_on_data_loss=loss)
                end = offsets_of(asked.end, store, bounds, fail_on_data_loss=False)
                ranges = ranges_between(start, end)
            ranges = narrowed(ranges, self._conditions, store.offsets_at)
        sizes = mean_bytes(bounds)
        return split(ranges, least_tasks=asked.least_tasks, event_bytes=sizes)


class _Offer:
    """Takes filters if Spark offers any. A reader that has a method for it is refused by sessions
    that do not push filters down, and this one must do for those too; hence no method."""

    def __init__(self, take: Callable[[Iterable[Filter]], Iterable[Filter]]) -> None:
        self._take = take
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


def read_task(asked: Query, shape: Shape, task: Task | None) -> Iterator["pa.RecordBatch"]:
    """The rows of one task; Spark plans one with nothing in it if there is nothing to read."""
    for span in task or ():
        batches = read_batches(
            asked.store, span, asked.wanted, shape.needed, complete=asked.fail_on_data_loss
        )
        yield from shape.rows(batches)


def _ranges(options: Options) -> tuple[OffsetRange, ...] | None:
    """Ranges of a delivery: lists of topic, partition, first and last."""
    if not options.has("ranges"):
        return None
    try:
        return tuple(OffsetRange(*part) for part in options.json("ranges"))
    except TypeError:
        raise UsageError(
            "option ranges is a JSON list of lists of topic, partition, first and last offset"
        ) from None


def _event_filter(options: Options) -> EventFilter:
    found: Any = options.json("filter") or {}
    if not isinstance(found, Mapping) or found.keys() - {"equals", "exists", "keys"}:
        raise UsageError(
            "option filter is JSON with equals, exists and keys, as "
            + json.dumps({"equals": {"region": "eu"}, "exists": ["channel"]})
        )
    return EventFilter(
        found.get("equals", {}), tuple(found.get("exists", ())), tuple(found.get("keys", ()))
    )


_LATEST = Place("latest", option="endingOffsets")
