"""Delta tables: columns that change, windows that are replaced, files that are looked after."""

import threading
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_bus.errors import TableError, UsageError
from dagster_bus.spark.tables import Table, open_replacement, open_sink, replace_window
from tests.support.tables import A, B, deliver, delivery, numbers, rows_of


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(str(tmp_path / "table"))


def files(table: Table) -> set[Path]:
    return set(Path(table.path).rglob("*.parquet"))


def test_a_new_column_is_added_with_the_rows_that_bring_it(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1"), spark.sql("SELECT 1L AS n, struct(1 AS a) AS s"))
    wider = spark.sql("SELECT 'new' AS x, struct(2 AS a, 'b' AS b) AS s, 2L AS n")
    deliver(table, delivery("d2"), wider)
    deliver(table, delivery("d3"), spark.sql("SELECT 3 AS n"))
    seen = pl.read_delta(table.path).sort("n")
    assert seen["n"].to_list() == [1, 2, 3], "an int is widened to the table's bigint"
    assert seen["x"].to_list() == [None, "new", None]
    assert seen["s"].to_list()[:2] == [{"a": 1, "b": None}, {"a": 2, "b": "b"}]
    assert seen["s"].struct.field("a").to_list() == [1, 2, None]
    assert pl.read_delta(table.path, version=1).columns == ["n", "s", "_window"]
    assert pl.read_delta(table.path, version=2).columns == ["n", "s", "x", "_window"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'1' AS n", r"column n is int in the table and string in the pipeline \(cast it to int"),
        ("1L AS n", r"n is int in the table and bigint .* begin a new table with bigint"),
        ("1D AS d", r"column d is decimal\(12,2\) in the table and double in the pipeline"),
        ("struct('1' AS a) AS s", r"column s\.a is int in the table and string in the pipeline"),
        ("array('1') AS l", r"column l\.element is bigint in the table and string in the pipeline"),
        ("1 AS N", r"column N is n in the table, which readers take for the same; name it n"),
        ("1 AS n, null AS v", r"column v has no type \(it is always null\); cast it"),
        ("'x' AS _window", r"column '_window' is the table's own; rename it"),
        ("1 AS a, 2 AS A", r"columns 'a' and 'A' are the same to readers; rename one"),
        ("current_date - date'2026-01-01' AS i", r"column i is interval day, which tables cannot"),
    ],
)
def test_a_column_that_does_not_fit_stops_before_anything_is_written(
    spark: SparkSession, fitted: Table, columns: str, message: str
) -> None:
    before = files(fitted)
    sink = open_sink(fitted, delivery("d2"))
    with pytest.raises(TableError, match=message):
        sink.write(spark.sql(f"SELECT {columns}"))
    assert files(fitted) == before


@pytest.fixture(scope="module")
def fitted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with columns to clash with."""
    table = Table(str(tmp_path_factory.mktemp("fitted")))
    columns = "1 AS n, CAST(1 AS decimal(12,2)) AS d, struct(1 AS a) AS s, array(1L) AS l"
    deliver(table, delivery("d1"), spark.sql(f"SELECT {columns}"))
    return table


def test_deliveries_that_add_different_columns_at_the_same_time_are_both_kept(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1"), numbers(spark, 0, 1))
    sinks = [open_sink(table, delivery(id)) for id in ("d2", "d3")]
    new = [numbers(spark, n, 1).withColumn(name, F.lit(name)) for n, name in ((1, "x"), (2, "y"))]
    written = [sink.write(rows) for sink, rows in zip(sinks, new, strict=True)]
    for sink, each in zip(sinks, written, strict=True):
        sink.commit(each)
    seen = pl.read_delta(table.path).sort("n")
    assert seen.select("n", "x", "y").rows() == [(0, None, None), (1, "x", None), (2, None, "y")]


def test_times_without_a_zone_come_into_a_table_that_had_none(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1"), numbers(spark, 0, 1))
    later = numbers(spark, 1, 1).select("n", F.expr("timestamp_ntz'2026-11-18 01:02:03' AS at"))
    deliver(table, delivery("d2"), later)
    assert str(pl.read_delta(table.path).sort("n")["at"].to_list()[1]) == "2026-11-18 01:02:03"


def test_a_window_is_replaced_and_the_others_are_not(spark: SparkSession, table: Table) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 3))
    deliver(table, delivery("d2", B), numbers(spark, 10, 3))
    new = numbers(spark, 100, 2).withColumn("x", F.lit("new"))
    assert replace_window(table, A, new, name="mend") is not None
    assert rows_of(table) == {A: [100, 101], B: [10, 11, 12]}
    assert replace_window(table, A, numbers(spark, 7, 7), name="mend") is None, "it was done"
    assert replace_window(table, B, numbers(spark, 20, 1), name="mend") is not None
    assert rows_of(table) == {A: [100, 101], B: [20]}
    assert open_sink(table, delivery("d1", A, token=2)).committed(), "it is not taken again"
    assert replace_window(table, A, numbers(spark, 0, 0), name="empty") is not None
    assert rows_of(table) == {B: [20]}


def test_the_first_rows_of_a_table_may_replace_an_empty_window(
    spark: SparkSession, table: Table
) -> None:
    replace_window(table, A, numbers(spark, 0, 2), name="first")
    assert rows_of(table) == {A: [0, 1]}


def test_a_delivery_that_comes_in_stops_the_replacement(spark: SparkSession, table: Table) -> None:
    """Whether the new rows include the delivery's, the table cannot know."""
    deliver(table, delivery("d1", A), numbers(spark, 0, 3))
    begun = open_replacement(table, A, name="mend")
    deliver(table, delivery("d2", A), numbers(spark, 3, 1))
    with pytest.raises(TableError, match=rf"window {A} of the table .* has changed since the repl"):
        begun.commit(begun.write(numbers(spark, 100, 2)))
    assert rows_of(table) == {A: [0, 1, 2, 3]}
    begun = open_replacement(table, A, name="mend")
    deliver(table, delivery("d3", B), numbers(spark, 10, 1))
    assert begun.commit(begun.write(numbers(spark, 100, 2))), "another window is no obstacle"
    assert rows_of(table) == {A: [100, 101], B: [10]}


def test_a_compaction_at_the_same_time_does_not_bring_replaced_rows_back(
    spark: SparkSession, table: Table
) -> None:
    from deltalake import DeltaTable

    deliver(table, delivery("d1", A), numbers(spark, 0, 1))
    deliver(table, delivery("d2", A), numbers(spark, 1, 1))
    begun = open_replacement(table, A, name="mend")
    DeltaTable(table.path).optimize.compact()
    with pytest.raises(TableError, match="has changed since"):
        begun.commit(begun.write(numbers(spark, 100, 2)))
    replace_window(table, A, numbers(spark, 100, 2), name="mend")
    assert rows_of(table) == {A: [100, 101]}


def test_a_delivery_that_was_writing_while_its_window_was_replaced_is_added(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 3))
    open_one = open_sink(table, delivery("d2", A))
    written = open_one.write(numbers(spark, 3, 1))
    replace_window(table, A, numbers(spark, 100, 2), name="mend")
    open_one.commit(written)
    assert rows_of(table) == {A: [3, 100, 101]}


def test_an_open_delivery_that_a_replacement_includes_is_not_added_again(
    spark: SparkSession, table: Table
) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 3))
    open_one = open_sink(table, delivery("d2", A))
    written = open_one.write(numbers(spark, 3, 1))
    replace_window(table, A, numbers(spark, 0, 4), name="mend", including=["d2"])
    open_one.commit(written)
    assert open_sink(table, delivery("d2", A, token=2)).committed()
    assert rows_of(table) == {A: [0, 1, 2, 3]}


def test_readers_see_the_old_rows_or_the_new_ones(spark: SparkSession, table: Table) -> None:
    deliver(table, delivery("d1", A), numbers(spark, 0, 4))
    deliver(table, delivery("d2", B), numbers(spark, 900, 1))
    versions = [list(range(first, first + 4)) for first in range(0, 40, 10)]
    seen: list[list[int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(rows_of(table)[A])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number, rows in enumerate(versions[1:]):
            replace_window(table, A, numbers(spark, rows[0], 4), name=f"r{number}")
    finally:
        done.set()
        reader.join()
    assert len(seen) > 3
    assert all(rows in versions for rows in seen)
    assert rows_of(table)[A] == versions[-1]


def test_a_name_that_cannot_be_a_folder_is_refused(spark: SparkSession, table: Table) -> None:
    with pytest.raises(UsageError, match=r"'\.\./x' cannot name a replacement"):
        replace_window(table, A, numbers(spark, 0, 1), name="../x")


def test_several_results_are_several_tables(spark: SparkSession, table: Table) -> None:
    for name, first in (("orders", 0), ("lines", 10)):
        deliver(table.named(name), delivery("d1"), numbers(spark, first, 2))
    assert rows_of(table.named("orders")) == {A: [0, 1]}
    assert rows_of(table.named("lines")) == {A: [10, 11]}
