"""One SQLite file: opening it, its settings, its version, its transactions, its errors in words."""

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TypeVar

from dagster_bus.errors import StoreError, StoreNotFound, StoreUnavailable, StoreUnusable

MEMORY = ":memory:"
"""The path of a store that lives in this process and ends with it."""

BUSY_TIMEOUT_S = 30.0

T = TypeVar("T")

_SQL = resources.files("dagster_bus.stores.sqlite") / "sql"
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

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some reading that sees the file at one moment."""
        return self._transact(self._reader, "BEGIN", work)

    def write(
        self,
        work: Callable[[sqlite3.Connection], T],
        committed: Callable[[], None] | None = None,
    ) -> T:
        """Do some work that is alone in writing, from its beginning; durable when it returns. Then
        call `committed`, before anybody else of this process writes."""
        return self._transact(self._writer, "BEGIN IMMEDIATE", work, committed)

    def note(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same for what may be forgotten if the power fails: it is on the disk with the next
        durable write, and never without what was written before it."""
        return self._transact(self._writer, "BEGIN IMMEDIATE", work, durable=False)

    def _transact(
        self,
        shared: "_Shared",
        begin: str,
        work: Callable[[sqlite3.Connection], T],
        committed: Callable[[], None] | None = None,
        *,
        durable: bool = True,
    ) -> T:
        """Committed when the work is done, or rolled back if it fails or is interrupted."""
        connection = shared.connection
        with shared.turn:  # the lock itself: no interrupt comes between taking and giving it back
            try:
                if connection.in_transaction:  # of a thread that was interrupted while it ended it
                    connection.execute("ROLLBACK")
                if durable is not shared.is_durable:
                    shared.set_durable(durable)
                connection.execute(begin)
                result = work(connection)
                connection.execute("COMMIT")
                if committed is not None:
                    committed()
                return result
            except BaseException as error:
                with suppress(sqlite3.Error):  # the first error is the one to tell of
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise in_words(self.path, error) from error
                raise

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
            self._writer.set_durable(True)

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
            if self._version() == len(scripts):
                return
            self.write(lambda connection: self._run_migrations(connection, scripts))

    def _run_migrations(self, connection: sqlite3.Connection, scripts: Sequence[str]) -> None:
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
        self.turn = threading.Lock()
        self.is_durable = True

    def set_durable(self, durable: bool) -> None:
        """Whether commits wait until they are on the disk."""
        self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self.is_durable = durable

    def close(self) -> None:
        with self.turn:
            self.connection.close()


def keep_freed_memory(block: int = 8 << 20) -> None:
    """Glibc hands freed memory back to the system at once, and a batch's memory is freed and needed
    again with every batch: a third of an append's time would go into page faults. How much it keeps
    is twice the largest block that was ever mapped and freed, up to 32 MB. Elsewhere this does
    nothing."""
    bytearray(block)


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
