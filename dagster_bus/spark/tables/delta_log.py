"""A Delta table's log: what the table has, and how something is added to it.

Spark writes Parquet files under the table's folder, where no reader sees them; one commit to the
log makes them visible together. Whoever commits says under which names, and Delta refuses a commit
if another one has used such a name since the log was read.
"""

import json

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dagster_bus.core.clock import system_clock
from dagster_bus.spark.tables.columns import WINDOW, evolved, usable, with_window, without_window
from dagster_bus.spark.tables.folder import format_of_files, of_another_format
from dagster_bus.spark.tables.sizing import in_sensible_files
from dagster_bus.spark.tables.storage import (
    Storage,
    committer_path,
    secrets_kept,
    spark_options,
    spark_path,
    storage_options,
)
from dagster_bus.spark.tables.table import DataFile, Table, Written

TRANSACTION_RETENTION = "interval 30 days"
"""For how long the table remembers a name; far longer than any delivery is tried."""

NTZ, NTZ_FEATURE = "timestamp_ntz", "timestampNtz"
NOWHERE = "-"
"""No window has this name."""


class DeltaLog:
    """The log of one table, which may not exist yet."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._path = committer_path(table.path)
        self._options = storage_options(table.options)

    def open(self) -> DeltaTable | None:
        """The table as it is now."""
        try:
            with secrets_kept(self.table):
                return DeltaTable(self._path, storage_options=self._options)
        except TableNotFoundError:
            return None

    def create(self, columns: StructType) -> DeltaTable:
        """The table, made now or at the same moment by somebody else."""
        if (found := format_of_files(self.table)) is not None:
            raise of_another_format(self.table, found)
        try:
            with secrets_kept(self.table):
                create_table_with_add_actions(
                    self._path,
                    _delta_schema(columns),
                    [],
                    mode="error",
                    partition_by=[WINDOW],
                    configuration={"delta.setTransactionRetentionDuration": TRANSACTION_RETENTION},
                    storage_options=self._options,
                )
        except DeltaError:
            if (table := self.open()) is not None:
                return table
            raise
        return DeltaTable(self._path, storage_options=self._options)

    def write(self, table: DeltaTable | None, rows: DataFrame, folder: str) -> Written:
        """Have Spark write rows under the table's folder, with the table's columns and theirs."""
        columns = usable(rows.schema)
        if table is not None:
            columns = _evolved(table, columns)
        with secrets_kept(self.table):
            writer = in_sensible_files(rows.to(columns)).write.mode("overwrite")
            writer = writer.options(**spark_options(self.table.options))
            writer.parquet(f"{spark_path(self.table.path).rstrip('/')}/{folder}")
            files = Storage(self.table).parquet_files(folder)
        return Written(columns, files, sum(file.rows for file in files))

    def written(self, table: DeltaTable, folder: str) -> Written:
        """What was written to a folder before."""
        with secrets_kept(self.table):
            files = Storage(self.table).parquet_files(folder)
        return Written(columns_of(table), files, sum(file.rows for file in files))

    def append(
        self, table: DeltaTable, window: str, written: Written, names: dict[str, int], note: str
    ) -> None:
        """Add rows to a window, and new columns to the table, in one commit. Others may commit at
        the same time; CommitFailedError says that one of them was in the way."""
        columns = _evolved(table, written.columns)
        known = columns == columns_of(table)
        with secrets_kept(self.table):
            _able_to_hold(columns, table)
            table.create_write_transaction(
                _add_actions(written.files, window),
                # Delta changes the columns only as it overwrites: here nothing.
                "append" if known else "overwrite",
                _delta_schema(columns),
                partition_by=[WINDOW],
                partition_filters=None if known else [(WINDOW, "=", NOWHERE)],
                commit_properties=_named(names, note),
            )

    def overwrite(
        self, table: DeltaTable, window: str, written: Written, names: dict[str, int], note: str
    ) -> None:
        """Put rows in the place of all that a window has, if nobody has committed anything since
        the table was opened; CommitFailedError if somebody has.

        Delta would let others in between, and leave what they brought beside the new rows."""
        columns = _evolved(table, written.columns)
        with secrets_kept(self.table):
            _able_to_hold(columns, table)
            table.create_write_transaction(
                _add_actions(written.files, window),
                "overwrite",
                _delta_schema(columns),
                partition_by=[WINDOW],
                partition_filters=[(WINDOW, "=", window)],
                commit_properties=_named(names, note, max_commit_retries=0),
            )


def columns_of(table: DeltaTable) -> StructType:
    """A table's columns without the window."""
    found = StructType.fromJson(json.loads(table.schema().to_json()))
    return usable(without_window(found))


def data_files(table: DeltaTable) -> list[tuple[str, DataFile]]:
    """Every file of a table, with its window."""
    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        (
            each[f"partition.{WINDOW}"],
            DataFile(
                each["path"],
                each["size_bytes"],
                each["modification_time"],
                each["num_records"] or 0,
            ),
        )
        for each in found
    ]


def window_files(table: DeltaTable | None, window: str) -> frozenset[str]:
    """The paths of a window's files."""
    if table is None:
        return frozenset()
    return frozenset(file.path for key, file in data_files(table) if key == window)


def _evolved(table: DeltaTable, columns: StructType) -> StructType:
    return evolved(columns_of(table), columns)


def _able_to_hold(columns: StructType, table: DeltaTable) -> None:
    """Times without a zone are a feature that a Delta table must say it has, before it does."""
    if NTZ in columns.simpleString() and NTZ_FEATURE not in (
        table.protocol().writer_features or []
    ):
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
        )


def _delta_schema(columns: StructType) -> Schema:
    """Spark and Delta spell columns alike."""
    return Schema.from_json(with_window(columns).json())


def _named(names: dict[str, int], note: str, **limits: int) -> CommitProperties:
    now_ms = system_clock()
    return CommitProperties(
        app_transactions=[Transaction(name, version, now_ms) for name, version in names.items()],
        custom_metadata={"dagster_bus.by": note},
        **limits,
    )


def _add_actions(files: tuple[DataFile, ...], window: str) -> list[AddAction | RemoveAction]:
    return [
        AddAction(
            path=file.path,
            size=file.size,
            partition_values={WINDOW: window},
            modification_time=file.modified_ms,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )
        for file in files
    ]
