"""One SQLite file: opening it, its settings, its version, its transactions, its errors in words."""

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from dagster_bus.errors import StoreError, StoreNotFound, StoreUnusable

BUSY_TIMEOUT_S = 30.0

_SQL = resources.files("dagster_bus.stores") / "sql"
_ADVICE = {
    "SQLITE_BUSY": "another process holds it; try again",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "it cannot be written to; check its permissions",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists and can be written to",
    "SQLITE_NOTADB": "it is not a SQLite database",
    "SQLITE_CORRUPT": "it is damaged; restore it from a backup",
}


def load_queries() -> dict[str, str]:
    """The statements of queries.sql by name."""
    text = (_SQL / "queries.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def load_migrations() -> list[str]:
    """The scripts that lead from an empty file to the present version, in order."""
    folder = _SQL / "migrations"
    files = sorted((file for file in folder.iterdir()), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in files if file.name.endswith(".sql")]


class SqliteConnection:
    """A connection shared by the threads of a process, one transaction at a time."""

    def __init__(self, path: str, *, create: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        if not create and not Path(path).exists():
            raise StoreNotFound(f"there is no store at {path} yet; the first publish makes it")
        with self._explained():
            if create:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            self._configure()
            self._migrate()
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees the file at one moment."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is alone in writing, from its beginning; durable when it ends."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _configure(self) -> None:
        with self._explained():
            self._use_wal()
            self._connection.execute("PRAGMA synchronous = FULL")

    def _use_wal(self) -> None:
        """Turn on the write-ahead log. While another process does the same to a new file, SQLite
        says that it is busy at once, whatever the time-out."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def _migrate(self) -> None:
        scripts = load_migrations()
        with self._explained():
            found = self._version()
            if found == len(scripts):
                return
            with self.writing() as connection:
                found = self._version()  # another process may have been faster
                if found > len(scripts):
                    raise StoreUnusable(
                        f"{self.path} was written by a newer dagster-bus (schema {found}, this one "
                        f"knows {len(scripts)}); upgrade dagster-bus"
                    )
                for script in scripts[found:]:
                    for statement in _statements(script):
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {len(scripts)}")

    def _version(self) -> int:
        version: int = self._connection.execute("PRAGMA user_version").fetchone()[0]
        return version

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explained():
            try:
                self._connection.execute(begin)
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what a database error means for the user."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StoreError(f"{self.path}: {error}") from error
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "") or ""
            advice = next((text for code, text in _ADVICE.items() if name.startswith(code)), None)
            kind = StoreUnusable if advice else StoreError
            raise kind(f"the store {self.path} failed: {advice or error}") from error
        except OSError as error:
            raise StoreUnusable(f"the store {self.path} failed: {error.strerror}") from error


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one, so that they run inside the caller's transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
