"""Spark's side: events as DataFrames, pipelines, and tables that take each delivery once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `format("dagster_bus")` known to a session, with all that it can do there."""
    from dagster_bus.spark.registering import register_source

    register_source(spark)
