"""Queries to a SQLite file that are answered in Arrow's columns.

The driver's own `dbapi` would import pandas and more, which takes a process that lives for a moment
longer than its work does.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

import adbc_driver_sqlite
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcStatement

BATCH_ROWS = adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value


class ArrowReader:
    """An open file. All queries see it as it was at the first one."""

    def __init__(self, connection: AdbcConnection) -> None:
        self._connection = connection

    def table(self, query: str, *values: str | int, rows: int = 1) -> pa.Table:
        """A result, of which the driver puts so many rows into one batch."""
        with closing(AdbcStatement(self._connection)) as statement:
            statement.set_options(**{BATCH_ROWS: str(rows)})
            statement.set_sql_query(query)
            if values:
                columns = [pa.array([value]) for value in values]
                names = [str(number) for number in range(len(values))]
                statement.bind(pa.record_batch(columns, names))
            stream, _ = statement.execute_query()
            return pa.RecordBatchReader.from_stream(stream).read_all()

    def row(self, query: str, *values: str | int) -> tuple[int, ...] | None:
        """The first row of a result of numbers."""
        found = self.table(query, *values)
        return tuple(column[0].as_py() for column in found.columns) if found.num_rows else None


@contextmanager
def reading(path: str) -> Iterator[ArrowReader]:
    """The file at a path, opened to be read."""
    address = f"file:{quote(path)}?mode=ro"
    with (
        closing(adbc_driver_sqlite.connect(address)) as database,
        closing(AdbcConnection(database)) as connection,
    ):
        connection.set_autocommit(False)
        reader = ArrowReader(connection)
        reader.table("PRAGMA busy_timeout = 30000")
        yield reader
