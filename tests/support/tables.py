"""Deliveries without a bus, brought into tables and read back by somebody else than Spark."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.spark.tables import Table, Written, open_sink

A, B, C = "2026-11-18T01", "2026-11-18T02", "2026-11-18T03"
"""Windows."""


def delivery(id: str, window: str = A, *, token: int = 1) -> Delivery:
    return Delivery(
        id=id,
        group="readers",
        window=window,
        ranges=(),
        state=State.RUNNING,
        token=token,
        due_ms=0,
        created_ms=0,
    )


def numbers(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count, numPartitions=2).toDF("n")


def deliver(table: Table, taken: Delivery, rows: DataFrame) -> Written:
    """All that a run does with a table, if nothing comes between."""
    sink = open_sink(table, taken)
    written = sink.write(rows)
    sink.commit(written)
    return written


def rows_of(table: Table) -> dict[str, list[int]]:
    """The numbers of each window, as an independent reader sees them."""
    if table.format == "delta":
        found = pl.read_delta(table.path).select("_window", "n").iter_rows()
    else:
        found = _in_files(table)
    seen: dict[str, list[int]] = defaultdict(list)
    for window, n in found:
        seen[window].append(n)
    return {window: sorted(seen[window]) for window in sorted(seen)}


def _in_files(table: Table) -> Iterator[tuple[str, int]]:
    """Files whose names, and those of their folders, are not hidden."""
    for file in sorted(Path(table.path).glob("_window=*/[!_.]*/[!_.]*")):
        window = file.parts[-3].removeprefix("_window=")
        if table.format == "parquet":
            found = pl.read_parquet(file, hive_partitioning=False)["n"].to_list()
        elif table.format == "json":
            found = [json.loads(line)["n"] for line in file.read_text().splitlines()]
        else:
            with file.open(newline="") as opened:
                found = [int(row["n"]) for row in csv.DictReader(opened)]
        yield from ((window, n) for n in found)
