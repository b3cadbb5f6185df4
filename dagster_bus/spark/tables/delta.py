"""A Delta table that takes each delivery once.

Spark writes Parquet files under the table's folder, where no reader sees them; one commit to the
table's log then makes them all visible. The commit names the delivery, so that a repetition is
recognised. It also carries the lease's fencing token under a name of its own: a worker that takes a
delivery over writes its token into the log first, and any commit that a former holder bases on an
older state of the table is then refused by Delta itself.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyspark.sql import DataFrame

from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery
from dagster_bus.errors import LeaseLost, TableError
from dagster_bus.spark.tables import table as seam
from dagster_bus.spark.tables.table import Table

WINDOW = "_window"
TRANSACTION_RETENTION = "interval 30 days"
"""For how long the table remembers a delivery; far longer than any of them is tried."""


@dataclass(frozen=True, slots=True)
class Written:
    """Files that Spark has written for a delivery and nobody sees yet."""

    schema: Schema
    files: tuple[AddAction, ...]
    rows: int

    @property
    def file_count(self) -> int:
        return len(self.files)


class DeltaSink:
    """One delivery's way into one table. Making it fences former holders of the delivery off."""

    def __init__(self, table: Table, delivery: Delivery) -> None:
        self._path = table.path
        self._delivery = delivery
        self._fence_name = f"{delivery.id}:fence"
        self._table = self._open()
        if self._table is not None and delivery.token > 1 and not self.committed():
            self._log(self._table, (), self._fence_name)
            self._table = self._open()

    def committed(self) -> bool:
        """Whether the table holds this delivery's rows already."""
        return self._transaction(self._delivery.id) is not None

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows, under a folder that only this lease uses."""
        if WINDOW in rows.columns:
            raise TableError(f"the pipeline's column {WINDOW!r} is the table's own; rename it")
        schema = _delta_schema(rows)
        if self._table is not None:
            _require_same_columns(self._table, schema)
        window = self._delivery.window
        folder = f"{WINDOW}={window}/{self._delivery.id}-{self._delivery.token}"
        target = Path(self._path) / folder
        rows.hint("rebalance").write.mode("overwrite").parquet(str(target))
        files = tuple(_add_action(file, f"{folder}/{file.name}", window) for file in _parts(target))
        return Written(schema, files, sum(_rows(file) for file in files))

    def commit(self, written: seam.Written) -> None:
        """Make the rows visible, once. Raises LeaseLost if another worker fenced this one off."""
        assert isinstance(written, Written)  # noqa: S101  (what `write` gave)
        if self._table is None:
            self._table = self._create(written.schema)
        if self.committed():
            return
        _require_same_columns(self._table, written.schema)
        self._log(self._table, written.files, self._delivery.id, self._fence_name)

    def _log(self, table: DeltaTable, files: tuple[AddAction, ...], *names: str) -> None:
        """Add to the table's log, under names that no other commit may have touched meanwhile.

        If one has, it is either this delivery's own, by another worker, or a later fence."""
        now_ms = system_clock()
        transactions = [Transaction(name, self._delivery.token, now_ms) for name in names]
        try:
            table.create_write_transaction(
                list(files),
                "append",
                table.schema(),
                partition_by=[WINDOW],
                commit_properties=CommitProperties(
                    app_transactions=transactions,
                    custom_metadata={"dagster_bus.group": self._delivery.group},
                ),
            )
        except CommitFailedError as error:
            self._table = self._open()
            if not self.committed():
                raise TableError(
                    f"the table {self._path} did not take delivery {self._delivery.id}: {error}"
                ) from error

    def _open(self) -> DeltaTable | None:
        """The table as it is now. Raises LeaseLost if its log has the fence of a later lease."""
        try:
            table = DeltaTable(self._path)
        except TableNotFoundError:
            return None
        fence = table.transaction_version(self._fence_name)
        if fence is not None and fence > self._delivery.token:
            raise LeaseLost(
                f"delivery {self._delivery.id} was taken over: the table {self._path} is fenced "
                f"with token {fence}, and this worker has {self._delivery.token}"
            )
        return table

    def _transaction(self, name: str) -> int | None:
        return self._table.transaction_version(name) if self._table is not None else None

    def _create(self, schema: Schema) -> DeltaTable:
        """The table, made now by this worker or at the same moment by another."""
        try:
            create_table_with_add_actions(
                self._path,
                schema,
                [],
                mode="error",
                partition_by=[WINDOW],
                configuration={"delta.setTransactionRetentionDuration": TRANSACTION_RETENTION},
            )
        except DeltaError:
            if (table := self._open()) is not None:
                return table
            raise
        return DeltaTable(self._path)


def _delta_schema(rows: DataFrame) -> Schema:
    """The pipeline's columns, all nullable, and the window. Spark and Delta spell them alike."""
    spec = _nullable(json.loads(rows.schema.json()))
    spec["fields"].append({"name": WINDOW, "type": "string", "nullable": True, "metadata": {}})
    return Schema.from_json(json.dumps(spec))


def _nullable(spec: Any) -> Any:
    if isinstance(spec, list):
        return [_nullable(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    flags = ("nullable", "containsNull", "valueContainsNull")
    return {key: True if key in flags else _nullable(part) for key, part in spec.items()}


def _require_same_columns(table: DeltaTable, schema: Schema) -> None:
    there = {field.name: str(field.type) for field in table.schema().fields}
    here = {field.name: str(field.type) for field in schema.fields}
    if there != here:
        changes = "; ".join(_differences(there, here))
        raise TableError(f"the pipeline's columns do not fit the table: {changes}")


def _differences(there: dict[str, str], here: dict[str, str]) -> Iterator[str]:
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            yield (
                f"{name} is {there.get(name, 'missing')} in the table "
                f"and {here.get(name, 'missing')} in the pipeline"
            )


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _add_action(file: Path, path: str, window: str) -> AddAction:
    status = file.stat()
    return AddAction(
        path=path,
        size=status.st_size,
        partition_values={WINDOW: window},
        modification_time=int(status.st_mtime * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": pq.read_metadata(file).num_rows}),
    )


def _rows(file: AddAction) -> int:
    count: int = json.loads(file.stats)["numRecords"]
    return count
