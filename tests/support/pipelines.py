"""Pipelines that the tests declare."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def keep(events: DataFrame) -> DataFrame:
    return events.select("n", F.col("_event.id").alias("event_id"))


def explode(events: DataFrame) -> DataFrame:
    return events.select(F.raise_error(F.lit("boom")).cast("bigint").alias("n"))
