"""Tables of plain files (parquet, json, csv) that take each delivery once.

Spark writes to a spool that readers pass over; one rename brings the rows into the window's folder,
under the delivery's name: where the name is, the rows are. A worker that takes a delivery over
leaves its token; who has an older one is refused, under the lock that also guards the rename.
"""

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dagster_bus.core.delivery import Delivery
from dagster_bus.errors import LeaseLost
from dagster_bus.spark.tables.columns import evolved, usable
from dagster_bus.spark.tables.delta_replacing import changed_meanwhile
from dagster_bus.spark.tables.folder import OWN, Folder, data_files, move, write_whole
from dagster_bus.spark.tables.sizing import in_sensible_files
from dagster_bus.spark.tables.storage import spark_options
from dagster_bus.spark.tables.table import Table, Written


class FileSink:
    """One delivery's way into one table. Making it fences former holders of the delivery off."""

    def __init__(self, table: Table, delivery: Delivery) -> None:
        self._folder = Folder(table)
        self._delivery = delivery
        self._spool = self._folder.spool(f"{delivery.id}-{delivery.token}")
        with self._folder.locked():
            self._require_latest()
            if not self.committed():
                write_whole(self._folder.fence(delivery.id), str(delivery.token))

    def committed(self) -> bool:
        """Whether the table holds this delivery's rows, or has held them."""
        window, id = self._delivery.window, self._delivery.id
        return (
            id in self._folder.entries(window) or id in self._folder.remembered(window).deliveries
        )

    def brought(self) -> Written | None:
        """The files under the delivery's name, unless others have taken the window's place."""
        own = self._folder.window(self._delivery.window) / self._delivery.id
        columns = self._folder.columns()
        if columns is None or not own.exists():
            return None
        return Written(columns, tuple(data_files(own, self._folder.root)), 0)

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows into the spool of this lease."""
        return write_files(self._folder, rows, self._spool)

    def commit(self, written: Written) -> None:
        """Make the rows visible, once. Raises LeaseLost if another worker fenced this one off."""
        window = self._folder.window(self._delivery.window)
        with self._folder.locked():
            self._require_latest()
            if not self.committed():
                self._folder.keep_columns(fitted(self._folder, written.columns))
                window.mkdir(parents=True, exist_ok=True)
                move(self._spool, window / self._delivery.id)
            self._folder.fence(self._delivery.id).unlink(missing_ok=True)
        shutil.rmtree(self._spool, ignore_errors=True)

    def _require_latest(self) -> None:
        fence = self._folder.fence(self._delivery.id)
        token = int(fence.read_text()) if fence.exists() else 0
        if token > self._delivery.token:
            raise LeaseLost(
                f"delivery {self._delivery.id} was taken over: the table {self._folder.root} is "
                f"fenced with token {token}, and this worker has {self._delivery.token}"
            )


class FileReplacement:
    """One replacement of one window. Making it looks at what the window has."""

    def __init__(self, table: Table, window: str, *, name: str) -> None:
        self._folder = Folder(table)
        self._window = window
        self._name = name
        self._staged = self._folder.spool(f"{name}-{uuid4()}")
        with self._folder.locked():
            self._seen = self._folder.entries(window)
            self._replaced = self._folder.remembered(window).deliveries

    def done(self) -> bool:
        """Whether a replacement of this name has been made in this window."""
        return self._name in self._folder.remembered(self._window).replacements

    def has(self, delivery: str) -> bool:
        """Whether the table held a delivery's rows when this began."""
        return delivery in self._seen or delivery in self._replaced

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows into a spool of their own."""
        return write_files(self._folder, rows, self._staged / f"replaced-{self._name}")

    def commit(self, written: Written, including: Collection[str] = ()) -> bool:
        """Put the rows in the place of all that the window has."""
        with self._folder.locked():
            if self.done():
                return False
            if self._folder.entries(self._window) != self._seen:
                raise changed_meanwhile(self._folder.table, self._window, self._name)
            self._folder.keep_columns(fitted(self._folder, written.columns))
            write_whole(self._staged / f"{OWN}.json", json.dumps(self._memory(including)))
            self._folder.swap(self._window, self._staged)
        return True

    def _memory(self, including: Collection[str]) -> dict[str, list[str]]:
        """What the new folder says of the one that it replaces."""
        before = self._folder.remembered(self._window)
        deliveries = {name for name in self._seen if not name.startswith("replaced-")}
        return {
            "deliveries": sorted({*before.deliveries, *deliveries, *including}),
            "replacements": sorted({*before.replacements, self._name}),
        }


def fitted(folder: Folder, columns: StructType) -> StructType:
    """The table's columns once it takes these."""
    there = folder.columns()
    return columns if there is None else evolved(there, columns)


def write_files(folder: Folder, rows: DataFrame, target: Path) -> Written:
    """Have Spark write rows with the table's columns and theirs, and count them on the way."""
    table = folder.table
    columns = fitted(folder, usable(rows.schema, table.format))
    counted = Observation()
    writer = (
        in_sensible_files(rows.to(columns))
        .observe(counted, F.count(F.lit(1)).alias("rows"))
        .write.mode("overwrite")
        .format(table.format)
        .options(**spark_options(table.options))
    )
    writer.save(str(target))
    target.mkdir(parents=True, exist_ok=True)  # there may be nothing to write
    return Written(columns, tuple(data_files(target, folder.root)), counted.get["rows"])
