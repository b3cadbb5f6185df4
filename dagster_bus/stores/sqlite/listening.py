"""Waiting for appends to a SQLite file by whatever process."""

import sqlite3
import time

from dagster_bus.core.closing import Closing
from dagster_bus.stores.sqlite.connection import MEMORY, SqliteConnection, in_words

PAUSE_S = 0.008
"""Between two looks, each of some microseconds: they wake a reader in good time and cost a core
less than one percent."""


class SqliteListener(Closing):
    """Looks at the file's data version, which is one number in shared memory."""

    def __init__(self, file: SqliteConnection) -> None:
        self._path = file.path
        self._own = file.path != MEMORY
        self._connection = file.watch()
        self._seen = self._version()

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while (version := self._version()) == self._seen:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(PAUSE_S, left_s))
        self._seen = version
        return True

    def close(self) -> None:
        if self._own:
            self._connection.close()

    def _version(self) -> int:
        """A number that changes when something was written: by other connections, or, where there
        is only one, by this one."""
        try:
            if not self._own:
                return self._connection.total_changes
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise in_words(self._path, error) from error
        return version
