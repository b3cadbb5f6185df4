"""One SQLite file: opening it, its settings, its version, its transactions, its errors in words."""

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import resources
from pathlib import Path

from dagster_bus.errors import StoreError, StoreNotFound, StoreUnavailable, StoreUnusable

MEMORY = ":memory:"
"""The path of a store that lives in this process and ends with it."""

BUSY_TIMEOUT_S = 30.0

_SQL = resources.files("dagster_bus.stores") / "sql"
_ADVICE = {
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
    """Two connections shared by the threads of a process: one to write, and one to read while the
    other writes. Each does one transaction at a time."""

    def __init__(self, path: str, *, create: bool) -> None:
        self.path = path
        if not create and not Path(path).exists():
            raise StoreNotFound(f"there is no store at {path} yet; the first publish makes it")
        with self._explained():
            if create and path != MEMORY:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._writer = _Shared(path)
        self._reader = self._writer
        try:
            self._configure()
            self._migrate()
            if path != MEMORY:
                with self._explained():
                    self._reader = _Shared(path)
                    self._reader.connection.execute("PRAGMA query_only = ON")
        except BaseException:
            self.close()
            raise

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that sees the file at one moment."""
        return self._transaction(self._reader, "BEGIN")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that is alone in writing, from its beginning; durable when it ends."""
        return self._transaction(self._writer, "BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, shared: "_Shared", begin: str) -> Iterator[sqlite3.Connection]:
        """Committed at the end of its block, or rolled back if that fails, or was interrupted."""
        connection = shared.connection
        with shared.turn:
            try:
                if connection.in_transaction:  # of a thread that was interrupted while it ended it
                    connection.execute("ROLLBACK")
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise in_words(self.path, error) from error
            finally:
                with suppress(sqlite3.Error):  # the first error is the one to tell of
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def watch(self) -> sqlite3.Connection:
        """A connection of its own, to see by its data version that others have written; of a store
        in memory, which has but one, that one."""
        with self._explained():
            if self.path == MEMORY:
                return self._writer.connection
            return _connect(self.path)

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    def _configure(self) -> None:
        with self._explained():
            self._use_wal()
            self._writer.connection.execute("PRAGMA synchronous = FULL")

    def _use_wal(self) -> None:
        """Turn on the write-ahead log. While another process does the same to a new file, SQLite
        says that it is busy at once, whatever the time-out."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._writer.connection.execute("PRAGMA journal_mode = WAL")
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
                if not found and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                    raise StoreUnusable(
                        f"{self.path} is a SQLite database of another program, and was left alone; "
                        "name another file"
                    )
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
        version: int = self._writer.connection.execute("PRAGMA user_version").fetchone()[0]
        return version

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what a database error means for the user."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise in_words(self.path, error) from error


class _Shared:
    """A connection that threads take in turns."""

    def __init__(self, path: str) -> None:
        self.connection = _connect(path)
        self.turn = threading.RLock()  # a thread that was interrupted can take its turn again

    def close(self) -> None:
        with self.turn:
            self.connection.close()


def keep_freed_memory() -> None:
    """Glibc hands freed memory back to the system at once, and a batch's memory is freed and needed
    again with every batch: a third of an append's time would go into page faults. How much it keeps
    is twice the largest block that was ever mapped and freed. Elsewhere this does nothing."""
    bytearray(8 << 20)


keep_freed_memory()


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def in_words(path: str, error: sqlite3.Error | OSError) -> StoreError:
    """What a database error means for the user."""
    if isinstance(error, OSError):
        return StoreUnusable(f"the store {path} failed: {error.strerror}")
    if isinstance(error, sqlite3.ProgrammingError):
        return StoreError(f"{path}: {error}")
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreUnavailable(
            f"the store {path} is locked: another process has been writing to it for "
            f"{BUSY_TIMEOUT_S:.0f} s; try again, or see what that process does"
        )
    advice = next((text for code, text in _ADVICE.items() if name.startswith(code)), None)
    kind = StoreUnusable if advice else StoreError
    return kind(f"the store {path} failed: {advice or error}")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one, so that they run inside the caller's transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
