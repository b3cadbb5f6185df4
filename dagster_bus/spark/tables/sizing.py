"""Rows in files that are not tiny, however many tasks they come from.

What a single task makes is not split: a pipeline that brings very much into one has to deal it out
again (`repartition`)."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_TASK = "_dagster_bus_task"

MOST_FILES = 200
"""Before Spark puts the small ones together."""


def in_sensible_files(rows: DataFrame) -> DataFrame:
    """The same rows, such that Spark writes few files.

    What one task makes stays together. To deal rows out one by one, Spark would have to sort them
    first: a task that is repeated must deal the same way, or rows would be lost. That takes as long
    as all the rest of writing does."""
    marked = rows.withColumn(_TASK, F.spark_partition_id())
    return marked.hint("rebalance", MOST_FILES, F.col(_TASK)).drop(_TASK)
