"""Pipelines that the tests declare."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def keep(events: DataFrame) -> DataFrame:
    return events.select("n", F.col("_event.id").alias("event_id"))


def explode(events: DataFrame) -> DataFrame:
    return events.select(F.raise_error(F.lit("boom")).cast("bigint").alias("n"))


def all_but_7(events: DataFrame) -> DataFrame:
    """The same as `keep`, if none of the events is the seventh."""
    boom = F.raise_error(F.lit("boom")).cast("bigint")
    return keep(events.withColumn("n", F.when(F.col("n") == 7, boom).otherwise(F.col("n"))))


sessions: list[str] = []
"""The modules that the sessions of `noting` came from."""


def noting(events: DataFrame) -> DataFrame:
    """The same as `keep`, and a note of the kind of session."""
    sessions.append(type(events.sparkSession).__module__)
    return keep(events)
