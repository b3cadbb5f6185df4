"""Events as pipelines see them: the payload's columns, and the envelope in `_event`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.event import Event
from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.schemas.tree import quoted
from dagster_bus.spark.source import FORMAT, BusDataSource
from dagster_bus.stores.arrow import to_table


def read_events(
    spark: SparkSession,
    store: str,
    ranges: Sequence[OffsetRange],
    wanted: EventFilter,
    columns: dict[str, str],
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
