"""Events as pipelines see them: the payload's columns, and the envelope in `_event`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.event import Event
from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.schemas.tree import quoted
from dagster_bus.spark.source import FORMAT, BusDataSource
from dagster_bus.spark.source.columns import ENVELOPE, EVENT_TYPE
from dagster_bus.stores.arrow import to_table
from dagster_bus.stores.staging import PARSED

__all__ = ["DataFrame", "SparkSession", "frame_of", "read_events"]

EVENT = "_event"
CORRUPT = "_corrupt"
"""The payload as it is, if it does not fit the columns; asked for by `corrupt` in the file."""


def read_events(
    spark: SparkSession,
    store: str,
    ranges: Sequence[OffsetRange],
    wanted: EventFilter,
    columns: dict[str, str],
    *,
    with_corrupt: bool = False,
) -> DataFrame:
    """The events of some ranges that pass a filter."""
    spark.dataSource.register(BusDataSource)
    raw = (
        spark.read.format(FORMAT)
        .option("store", store)
        .option("ranges", json.dumps([[r.topic, r.partition, r.first, r.last] for r in ranges]))
        .option("filter", json.dumps(asdict(wanted)))
        .load()
    )
    return _as_pipelines_see_them(raw, columns, with_corrupt)


def frame_of(
    spark: SparkSession,
    events: Iterable[Event],
    columns: dict[str, str],
    *,
    with_corrupt: bool = False,
) -> DataFrame:
    """The same of events that are at hand: dead letters that were sent back."""
    return _as_pipelines_see_them(spark.createDataFrame(to_table(events)), columns, with_corrupt)


def staged_frame(
    spark: SparkSession,
    folder: Path,
    counts: Mapping[str, int],
    columns: dict[str, str],
    *,
    with_corrupt: bool = False,
) -> DataFrame:
    """The same of events that are staged in a folder, so many in files of each kind."""
    ready = {**_asked(columns, with_corrupt), EVENT: EVENT_TYPE}

    def read(kind: str, types: dict[str, str]) -> DataFrame:
        files = (folder / kind).as_uri()
        return spark.read.schema(_ddl(types)).parquet(files)

    frames = [
        read(kind, ready)
        if kind == PARSED
        else _as_pipelines_see_them(read(kind, ENVELOPE), columns, with_corrupt)
        for kind, count in counts.items()
        if count
    ]
    return reduce(lambda one, other: one.union(other), frames or [_empty(spark, ready)])


def _empty(spark: SparkSession, columns: dict[str, str]) -> DataFrame:
    return spark.createDataFrame([], _ddl(columns))


def _as_pipelines_see_them(
    raw: DataFrame, columns: dict[str, str], with_corrupt: bool
) -> DataFrame:
    envelope = F.struct(*(F.col(name) for name in raw.columns)).alias(EVENT)
    if not columns:
        nothing = F.lit(None).cast("string").alias(CORRUPT)
        return raw.select(*([nothing] if with_corrupt else []), envelope)
    options = {"columnNameOfCorruptRecord": CORRUPT} if with_corrupt else None
    fields = _asked(columns, with_corrupt)
    parsed = raw.select(envelope, F.from_json("payload", _ddl(fields), options).alias("_payload"))
    return parsed.select(*(F.col(f"_payload.{quoted(name)}").alias(name) for name in fields), EVENT)


def _asked(columns: dict[str, str], with_corrupt: bool) -> dict[str, str]:
    return {**columns, CORRUPT: "string"} if with_corrupt else columns


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
