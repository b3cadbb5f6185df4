"""Files of tables: how many, how large, and when they go."""

import json
import os
import threading
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from dagster_bus.errors import UsageError
from dagster_bus.spark.tables import (
    Maintained,
    Table,
    describe_windows,
    maintain,
    open_sink,
    read_table,
    replace_window,
)
from tests.support.tables import A, B, C, deliver, delivery, numbers, rows_of

HOUR_MS = 3_600_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(str(tmp_path / "table"))


def make_older(folder: Path, hours: int) -> None:
    then = time.time() - hours * 3_600
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then))


def test_a_small_batch_is_one_file_and_a_large_one_is_several_of_a_good_size(
    spark: SparkSession, table: Table
) -> None:
    small = deliver(table, delivery("d1"), spark.range(1_000, numPartitions=8).toDF("n"))
    assert (small.file_count, small.rows) == (1, 1_000)
    spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "4MB")
    try:
        many = spark.range(1_000_000, numPartitions=40).selectExpr("id AS n", "uuid() AS u")
        large = deliver(table, delivery("d2"), many)
    finally:
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")
    assert large.rows == 1_000_000
    assert 4 <= large.file_count <= 25, "several tasks share a file"
    sizes = [file.size for file in large.files]
    assert min(sizes) > max(sizes) / 10, "none is tiny"


def test_a_window_of_many_files_becomes_one_file_with_the_same_rows(
    spark: SparkSession, table: Table
) -> None:
    at = datetime(2026, 11, 18, 1, 2, 3, 456789, tzinfo=UTC)
    row = f"CAST(1.5 AS decimal(12,2)) AS price, timestamp'{at:%Y-%m-%d %H:%M:%S.%f}' AS at"
    for number in range(3):
        rows = spark.sql(f"SELECT {number}L AS n, {row}, array('é', null) AS tags")
        deliver(table, delivery(f"d{number}", A), rows)
    deliver(table, delivery("d3", A), spark.sql("SELECT 3L AS n, 'later' AS x"))
    for number in (10, 11):
        deliver(table, delivery(f"d{number}", B), numbers(spark, number, 1))
    before = pl.read_delta(table.path).sort("n")
    done = maintain(table)
    assert (done.files_before, done.files_after, done.removed) == (6, 3, 0)
    after = pl.read_delta(table.path).sort("n")
    assert after.equals(before)
    assert after["at"][0] == at
    assert after["price"][0] == Decimal("1.50")
    seen = {each.window: (each.files, each.rows) for each in describe_windows(table)}
    assert seen == {A: (1, 4), B: (2, 2)}, "the newest window is still being filled"
    assert maintain(table, window=B).files_after == 2
    again = maintain(table)
    assert again == Maintained(2, 2, again.bytes, 0)
    assert open_sink(table, delivery("d1", A, token=2)).committed(), "it is still known"
    read = read_table(spark, table, [A])
    assert read is not None
    assert sorted((each.n, each.x, each._window) for each in read.collect()) == [
        (0, None, A), (1, None, A), (2, None, A), (3, "later", A),
    ]  # fmt: skip


def test_what_crashed_deliveries_left_is_removed_when_it_is_old_and_nobody_writes_it(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 2))
    folders = {}
    for id in ("dead", "slow", "young"):
        sink = open_sink(table, delivery(id, A))
        folders[id] = Path(table.path) / Path(sink.write(numbers(spark, 9, 1)).files[0].path).parent
    half_written = folders["dead"] / "_temporary/0/task/part-0.parquet"
    half_written.parent.mkdir(parents=True)
    half_written.touch()
    inside = table.named("lines")
    deliver(inside, delivery("d1", A), numbers(spark, 5, 1))
    for folder in (folders["dead"], folders["slow"], Path(inside.path)):
        make_older(folder, 200)
    assert maintain(table, busy=["slow"]).removed == 2
    assert not folders["dead"].exists()
    assert list(folders["slow"].glob("*.parquet"))
    assert list(folders["young"].glob("*.parquet"))
    assert rows_of(table) == {A: [0, 1]}
    assert rows_of(inside) == {A: [5]}, "a table inside the folder is none of its business"
    assert maintain(table, retention_ms=HOUR_MS).removed == 1


def test_replaced_files_stay_for_readers_until_the_retention_has_passed(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 2))
    replace_window(table, A, numbers(spark, 5, 1), name="mend")
    assert maintain(table).removed == 0
    assert sorted(pl.read_delta(table.path, version=1)["n"]) == [0, 1]
    log = max((Path(table.path) / "_delta_log").glob("*.json"))
    log.write_text(_shifted(log.read_text(), int(time.time() * 1000) - 200 * HOUR_MS))
    assert maintain(table).removed == 1
    assert rows_of(table) == {A: [5]}


def _shifted(log: str, to_ms: int) -> str:
    """A commit whose removals happened at another time."""
    lines = [json.loads(line) for line in log.splitlines()]
    for line in lines:
        if "remove" in line:
            line["remove"]["deletionTimestamp"] = to_ms
    return "\n".join(json.dumps(line) for line in lines)


def test_maintenance_loses_nothing_that_is_committed_meanwhile(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d0", A), numbers(spark, 0, 1))
    deliver(table, delivery("z0", C), numbers(spark, 99, 1))
    written = []
    for number in range(1, 13):
        sink = open_sink(table, delivery(f"d{number}", A))
        written.append((sink, sink.write(numbers(spark, number, 1))))
    errors: list[BaseException] = []

    def look_after() -> None:
        try:
            while not done.is_set():
                maintain(table, window=A, retention_ms=HOUR_MS)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    done = threading.Event()
    keeper = threading.Thread(target=look_after)
    keeper.start()
    try:
        for sink, each in written:
            sink.commit(each)
    finally:
        done.set()
        keeper.join()
    assert errors == []
    maintain(table, window=A)
    assert rows_of(table) == {A: list(range(13)), C: [99]}
    operations = [each["operation"] for each in DeltaTable(table.path).history()]
    assert operations.count("OPTIMIZE") >= 2, "it was at work meanwhile"


def test_a_retention_that_endangers_readers_is_refused(table: Table) -> None:
    with pytest.raises(UsageError, match=r"retention is too short.* Take 1h or more"):
        maintain(table, retention_ms=HOUR_MS - 1)


def test_a_table_that_does_not_exist_yet_needs_no_care(spark: SparkSession, table: Table) -> None:
    assert maintain(table) == Maintained(0, 0, 0, 0)
    assert describe_windows(table) == []
    assert read_table(spark, table) is None
    assert not Path(table.path).exists()
