"""A table as Spark and as people see it: its rows, its windows and its files."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dagster_bus.spark.tables.columns import with_window
from dagster_bus.spark.tables.delta_log import DeltaLog, columns_of, data_files
from dagster_bus.spark.tables.folder import Folder
from dagster_bus.spark.tables.storage import secrets_kept, spark_options, spark_path
from dagster_bus.spark.tables.table import DataFile, Table, Written


@dataclass(frozen=True, slots=True)
class WindowFiles:
    """What a window takes up."""

    window: str
    files: int
    bytes: int
    rows: int | None
    """Where the format knows without reading."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A table at one moment: its columns, if it exists, and its files by window."""

    columns: StructType | None
    files: dict[str, list[DataFile]]

    def windows(self, *, counted: bool) -> list[WindowFiles]:
        return [
            WindowFiles(
                window,
                len(files),
                sum(file.size for file in files),
                sum(file.rows for file in files) if counted else None,
            )
            for window, files in sorted(self.files.items())
        ]


def contents(table: Table) -> Contents:
    """What a table has now. No Spark is needed."""
    return _of_delta(DeltaLog(table).open()) if table.format == "delta" else _of_folder(table)


def holds(table: Table, window: str, delivery: str) -> bool:
    """Whether a delivery has come into a table, as the table remembers it."""
    if table.format == "delta":
        opened = DeltaLog(table).open()
        return opened is not None and opened.transaction_version(delivery) is not None
    folder = Folder(table)
    return delivery in folder.entries(window) | folder.remembered(window).deliveries


def describe_windows(table: Table) -> list[WindowFiles]:
    """The windows of a table, oldest first."""
    return contents(table).windows(counted=table.format == "delta")


def read_table(
    spark: SparkSession, table: Table, windows: Collection[str] | None = None
) -> DataFrame | None:
    """The rows of a table, or of some of its windows, with the column `_window`. None if nothing
    was ever written there."""
    found = contents(table)
    if found.columns is None:
        return None
    files = [
        file
        for window, some in sorted(found.files.items())
        for file in some
        if windows is None or window in windows
    ]
    return _read(spark, table, files, with_window(found.columns), basePath=_root(table))


def read_written(spark: SparkSession, table: Table, written: Written) -> DataFrame:
    """Rows that were written to a table's folder, whether the table has them already or not."""
    return _read(spark, table, written.files, written.columns)


def _read(
    spark: SparkSession,
    table: Table,
    files: Iterable[DataFile],
    columns: StructType,
    **options: str,
) -> DataFrame:
    paths = [f"{_root(table)}/{file.path}" for file in files]
    if not paths:
        return spark.createDataFrame([], columns)
    reader = spark.read.schema(columns).options(**spark_options(table.options), **options)
    kind = "parquet" if table.format == "delta" else table.format
    with secrets_kept(table):
        return reader.format(kind).load(paths)


def _root(table: Table) -> str:
    return spark_path(table.path).rstrip("/")


def _of_delta(table: DeltaTable | None) -> Contents:
    if table is None:
        return Contents(None, {})
    files: dict[str, list[DataFile]] = {}
    for window, file in data_files(table):
        files.setdefault(window, []).append(file)
    return Contents(columns_of(table), files)


def _of_folder(table: Table) -> Contents:
    folder = Folder(table)
    return Contents(folder.columns(), {key: folder.files(key) for key in folder.windows()})
