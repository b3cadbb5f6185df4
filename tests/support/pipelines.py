"""Pipelines that the tests declare."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def keep(events: DataFrame) -> DataFrame:
    return events.select("n", F.col("_event.id").alias("event_id"))


def explode(events: DataFrame) -> DataFrame:
    return events.select(F.raise_error(F.lit("boom")).cast("bigint").alias("n"))


sessions: list[str] = []
"""The modules that the sessions of `noting` came from."""


def noting(events: DataFrame) -> DataFrame:
    """The same as `keep`, and a note of the kind of session."""
    sessions.append(type(events.sparkSession).__module__)
    return keep(events)
