"""Other rows for a window of a Delta table, in one commit.

Readers see the old rows or the new ones. What names the table remembers outlives its files: a
delivery whose rows were replaced is still known, and is not taken a second time.
"""

from collections.abc import Collection
from uuid import uuid4

from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame

from dagster_bus.errors import TableError, WindowChanged
from dagster_bus.spark.tables.columns import WINDOW
from dagster_bus.spark.tables.delta_log import DeltaLog, window_files
from dagster_bus.spark.tables.table import Table, Written

TRIES = 50


class DeltaReplacement:
    """One replacement of one window. Making it looks at what the window has."""

    def __init__(self, table: Table, window: str, *, name: str) -> None:
        self._place = table
        self._window = window
        self._name = name
        self._delta = DeltaLog(table)
        self._table = self._delta.open()
        self._seen = window_files(self._table, window)

    def done(self) -> bool:
        """Whether a replacement of this name has been made in this window."""
        return (
            self._table is not None
            and self._table.transaction_version(self._transaction) is not None
        )

    def has(self, delivery: str) -> bool:
        """Whether the table holds a delivery's rows."""
        return self._table is not None and self._table.transaction_version(delivery) is not None

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows, under a folder of their own."""
        folder = f"{WINDOW}={self._window}/{self._name}-{uuid4()}"
        return self._delta.write(self._table, rows, folder)

    def commit(self, written: Written, including: Collection[str] = ()) -> bool:
        """Put the rows in the place of all that the window has."""
        table = self._table or self._delta.create(written.columns)
        self._table = table
        names = {self._transaction: 1, **dict.fromkeys(including, 0)}
        for _ in range(TRIES):
            if self.done():
                return False
            if window_files(table, self._window) != self._seen:
                raise changed_meanwhile(self._place, self._window, self._name)
            try:
                self._delta.overwrite(table, self._window, written, names, self._name)
                return True
            except CommitFailedError:  # somebody committed: look again
                table.update_incremental()
        raise TableError(
            f"the table {self._place.path} is written to so often that window {self._window} could "
            f"not be replaced; nothing was changed, try again when less is going on"
        )

    @property
    def _transaction(self) -> str:
        return f"{self._name}:{self._window}"


def changed_meanwhile(table: Table, window: str, name: str) -> WindowChanged:
    return WindowChanged(
        f"window {window} of the table {table.path} has changed since the replacement {name} was "
        "begun: these rows may lack what came in. Nothing was replaced; read the window's events "
        "again, and replace it with what comes of them"
    )
