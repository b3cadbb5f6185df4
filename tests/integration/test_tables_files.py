"""Tables of plain files: parquet, json and csv."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_bus.errors import TableError
from dagster_bus.spark.tables import (
    Table,
    WindowFiles,
    describe_windows,
    maintain,
    open_replacement,
    open_sink,
    read_table,
    replace_window,
)
from tests.integration.test_tables_maintenance import make_older
from tests.support.tables import A, B, deliver, delivery, numbers, rows_of


@pytest.fixture(params=["parquet", "json", "csv"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    options = {"header": "true"} if request.param == "csv" else {}
    return Table(str(tmp_path / "table"), request.param, options)


def test_a_delivery_becomes_a_folder_of_its_window(spark: SparkSession, table: Table) -> None:
    written = deliver(table, delivery("d1", A), numbers(spark, 0, 5))
    assert (written.rows, written.file_count) == (5, 1)
    deliver(table, delivery("d2", B), numbers(spark, 10, 0))
    assert rows_of(table) == {A: [0, 1, 2, 3, 4]}
    assert (Path(table.path) / f"_window={A}" / "d1").is_dir()
    assert open_sink(table, delivery("d2", B, token=2)).committed(), "nothing is a result too"
    plain = spark.read.format(table.format).options(**table.options).load(table.path)
    assert plain.count() == 5, "anybody can read it"


def test_new_columns_are_added_and_missing_ones_are_null(spark: SparkSession, table: Table) -> None:
    deliver(table, delivery("d1", A), spark.sql("SELECT 1L AS n, 'a' AS s"))
    deliver(table, delivery("d2", A), spark.sql("SELECT date'2026-11-18' AS d, 2 AS n"))
    read = read_table(spark, table)
    assert read is not None
    assert read.columns == ["n", "s", "d", "_window"]
    assert sorted((row.n, row.s, str(row.d), row._window) for row in read.collect()) == [
        (1, "a", "None", A), (2, None, "2026-11-18", A),
    ]  # fmt: skip
    sink = open_sink(table, delivery("d3", A))
    with pytest.raises(TableError, match="column n is bigint in the table and string in the pipe"):
        sink.write(spark.sql("SELECT '1' AS n"))
    assert rows_of(table) == {A: [1, 2]}
    (seen,) = describe_windows(table)
    assert (seen.window, seen.files, seen.rows) == (A, 2, None)
    nothing = read_table(spark, table, [B])
    assert nothing is not None
    assert nothing.count() == 0


def test_a_window_is_replaced_and_the_others_are_not(spark: SparkSession, table: Table) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 3))
    deliver(table, delivery("d2", B), numbers(spark, 10, 2))
    late = open_sink(table, delivery("d3", A))
    written = late.write(numbers(spark, 3, 1))
    assert replace_window(table, A, numbers(spark, 100, 2), name="mend") is not None
    assert replace_window(table, A, numbers(spark, 7, 7), name="mend") is None, "it was done"
    assert rows_of(table) == {A: [100, 101], B: [10, 11]}
    assert open_sink(table, delivery("d1", A, token=2)).committed(), "it is not taken again"
    begun = open_replacement(table, A, name="again")
    late.commit(written)
    with pytest.raises(TableError, match=f"window {A} of the table .* has changed since"):
        begun.commit(begun.write(numbers(spark, 7, 7)))
    assert rows_of(table) == {A: [3, 100, 101], B: [10, 11]}
    replace_window(table, A, numbers(spark, 7, 1), name="again", including=["d4"])
    assert rows_of(table) == {A: [7], B: [10, 11]}
    for id in ("d1", "d3", "d4"):
        assert open_sink(table, delivery(id, A, token=2)).committed()
    assert replace_window(table, A, numbers(spark, 8, 1), name="mend") is None, "still known"


def test_two_workers_of_one_delivery_commit_it_once(spark: SparkSession, table: Table) -> None:
    """All of them believe that they hold the lease."""
    sinks = [open_sink(table, delivery("d1")) for _ in range(4)]
    written = [sinks[0].write(numbers(spark, 0, 5))] * 4
    workers = [
        threading.Thread(target=sink.commit, args=[each])
        for sink, each in zip(sinks, written, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert rows_of(table) == {A: [0, 1, 2, 3, 4]}


def test_what_dead_workers_left_is_swept_and_files_are_not_joined(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 1))
    deliver(table, delivery("d2", A), numbers(spark, 1, 1))
    for id in ("dead", "slow", "young"):
        open_sink(table, delivery(id, B)).write(numbers(spark, 9, 1))
    spool = Path(table.path) / "_bus/spool"
    fences = spool.with_name("fences")
    for old in (spool / "dead-1", spool / "slow-1", fences / "dead", fences / "slow"):
        make_older(old, 200)
    done = maintain(table, busy=["slow"])
    assert (done.files_before, done.files_after, done.removed) == (2, 2, 1)
    assert sorted(path.name for path in spool.iterdir()) == ["slow-1", "young-1"]
    assert sorted(path.name for path in fences.iterdir()) == ["slow", "young"]


def test_csv_holds_no_nested_values(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(str(tmp_path / "table"), "csv")
    with pytest.raises(TableError, match="column s is struct<a:int>, which csv cannot hold"):
        open_sink(table, delivery("d1")).write(spark.sql("SELECT struct(1 AS a) AS s"))


def test_another_format_in_the_same_folder_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = numbers(spark, 0, 1)
    for number, (first, second) in enumerate(
        [("json", "csv"), ("json", "delta"), ("delta", "csv")]
    ):
        path = str(tmp_path / str(number))
        deliver(Table(path, first), delivery("d1"), rows)
        with pytest.raises(TableError, match=f"was made as {first}, and is now to be {second}"):
            deliver(Table(path, second), delivery("d2"), rows)


def test_plain_files_in_an_object_store_are_refused() -> None:
    with pytest.raises(TableError, match=r"a rename is no single step there\. Use format: delta"):
        open_sink(Table("s3://bucket/table", "parquet"), delivery("d1"))


def test_a_url_of_this_machine_is_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    for format in ("delta", "parquet"):
        folder = tmp_path / "with space" / format
        table = Table(folder.as_uri(), format)
        deliver(table, delivery("d1"), numbers(spark, 0, 2))
        assert rows_of(Table(str(folder), "parquet")) == {A: [0, 1]}
        (seen,) = describe_windows(table)
        assert seen == WindowFiles(A, 1, seen.bytes, 2 if format == "delta" else None)
        read = read_table(spark, table)
        assert read is not None
        assert sorted(row.n for row in read.collect()) == [0, 1]
        assert maintain(table).files_after == 1
