"""The folder of a table of plain files: its names, its lock, and what it remembers.

    _bus/lock               held by whoever changes the table; let go by the system if they die
    _bus/table.json         the table's format, and its columns as Spark spells them
    _bus/fences/DELIVERY    the token of the latest lease on a delivery that is not in the table
    _bus/spool/NAME         rows that are being written
    _bus/swap.json          a replacement of a window that is being made
    _window=KEY/DELIVERY/   the rows of a delivery
    _window=KEY/_bus.json   deliveries and replacements whose rows were replaced since

Readers pass over names that begin with `_` and hold no `=`. A rename is the one step that either
has happened or has not; all that takes two is written down first, in `swap.json`, and finished by
the next who gets the lock.
"""

import errno
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pyspark.sql.types import StructType

from dagster_bus.errors import TableError
from dagster_bus.spark.tables.columns import WINDOW, usable
from dagster_bus.spark.tables.storage import local_folder
from dagster_bus.spark.tables.table import DataFile, Table

LONGEST_WAIT_S = 60.0
LOOK_AGAIN_S = 0.02
OWN = "_bus"
ABOUT = "table.json"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a window has had beside what lies in its folder."""

    deliveries: frozenset[str] = frozenset()
    replacements: frozenset[str] = frozenset()


class Folder:
    """The files of one table."""

    def __init__(self, table: Table) -> None:
        root = local_folder(table.path)
        if root is None:
            raise TableError(
                f"{table.format} files at {table.path} cannot be committed: a rename is no single "
                "step there. Use format: delta, or a folder of a file system"
            )
        self.table = table
        self.root = Path(root)
        self._own = self.root / OWN

    def window(self, key: str) -> Path:
        return self.root / f"{WINDOW}={key}"

    def spool(self, name: str) -> Path:
        return self._own / "spool" / name

    def spooled(self) -> list[Path]:
        """What is being written, or was left behind."""
        return sorted((self._own / "spool").glob("*"))

    def discard(self, spooled: Path) -> None:
        shutil.rmtree(spooled, ignore_errors=True)

    def fence(self, delivery: str) -> Path:
        return self._own / "fences" / delivery

    def fences(self) -> list[Path]:
        return sorted((self._own / "fences").glob("*"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes the table; what somebody left half done is done first."""
        self._own.mkdir(parents=True, exist_ok=True)
        with (self._own / "lock").open("ab") as lock:
            if not _gets(lock):
                raise TableError(
                    f"the table {self.root} has been locked for {LONGEST_WAIT_S:.0f} s by a "
                    f"process that changes it (see who holds {lock.name}); try again"
                )
            self._finish_swap()
            yield

    def columns(self) -> StructType | None:
        """The table's columns, if it has any. Raises TableError if it has another format."""
        if (self.root / "_delta_log").exists():
            raise of_another_format(self.table, "delta")
        found = _read(self._own / ABOUT)
        if found is None:
            return None
        if found["format"] != self.table.format:
            raise of_another_format(self.table, found["format"])
        return usable(StructType.fromJson(found["columns"]))

    def keep_columns(self, columns: StructType) -> None:
        if columns != self.columns():
            about = {"format": self.table.format, "columns": columns.jsonValue()}
            write_whole(self._own / ABOUT, json.dumps(about))

    def remembered(self, key: str) -> Remembered:
        found = _read(self.window(key) / f"{OWN}.json") or {}
        return Remembered(**{name: frozenset(values) for name, values in found.items()})

    def entries(self, key: str) -> frozenset[str]:
        """The deliveries and replacements whose rows a window has."""
        return frozenset(_names(self.window(key)))

    def windows(self) -> list[str]:
        found = self.root.glob(f"{WINDOW}=*")
        keys = sorted(folder.name.removeprefix(f"{WINDOW}=") for folder in found)
        return [key for key in keys if self.entries(key)]

    def files(self, key: str) -> list[DataFile]:
        """The files of a window's rows."""
        found = []
        for entry in sorted(self.entries(key)):
            with suppress(FileNotFoundError):  # replaced at this moment
                found += data_files(self.window(key) / entry, self.root)
        return found

    def swap(self, key: str, staged: Path) -> None:
        """Put a folder in the place of a window's. Whoever is killed in between leaves word."""
        write_whole(self._own / "swap.json", json.dumps({"window": key, "staged": staged.name}))
        self._finish_swap()

    def _finish_swap(self) -> None:
        told = self._own / "swap.json"
        found = _read(told)
        if found is None:
            return
        window, staged = self.window(found["window"]), self.spool(found["staged"])
        old = staged.with_name(f"{staged.name}-old")
        if staged.exists():
            if window.exists():
                window.rename(old)
            staged.rename(window)
        told.unlink()
        shutil.rmtree(old, ignore_errors=True)


def format_of_files(table: Table) -> str | None:
    """The format of the plain files that a table's folder has, if it has any."""
    root = local_folder(table.path)
    found = _read(Path(root) / OWN / ABOUT) if root is not None else None
    return found["format"] if found is not None else None


def of_another_format(table: Table, found: str) -> TableError:
    return TableError(
        f"the table {table.path} was made as {found}, and is now to be {table.format}: readers "
        f"would take neither. Give it another path, or go back to format: {found}"
    )


def data_files(folder: Path, root: Path) -> list[DataFile]:
    """The files that Spark has written to a folder."""
    found = []
    for name in _names(folder):
        status = (folder / name).stat()
        path = (folder / name).relative_to(root).as_posix()
        found.append(DataFile(path, status.st_size, int(status.st_mtime * 1000)))
    return found


def move(folder: Path, target: Path) -> bool:
    """Rename a folder, if nothing has the new name yet."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def write_whole(file: Path, text: str) -> None:
    """Write a file that is read as it was before or as it is now, never as a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def _gets(lock: IO[bytes]) -> bool:
    """Wait for a lock, which the system lets go when its holder dies."""
    import fcntl  # Windows has none; there tables can only be read

    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(LOOK_AGAIN_S)
    return False


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if path.name[0] not in "._")
    except FileNotFoundError:
        return []


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
