"""Looking after a table: few files of a good size, and none that nobody needs.

Rows never change here. Deliveries go on meanwhile: what they commit is kept, and what they are just
writing is left alone.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from dagster_bus.errors import UsageError
from dagster_bus.spark.tables.columns import WINDOW
from dagster_bus.spark.tables.delta_log import DeltaLog
from dagster_bus.spark.tables.folder import Folder
from dagster_bus.spark.tables.reading import contents
from dagster_bus.spark.tables.storage import Storage, secrets_kept
from dagster_bus.spark.tables.table import DataFile, Table

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
TARGET_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done. Counts are of the files that readers see, but `removed`."""

    files_before: int
    files_after: int
    bytes: int
    """The size of the table's files now."""
    removed: int
    """Files that no reader needed any more, or that a crash had left behind."""


def maintain(
    table: Table,
    *,
    window: str | None = None,
    retention_ms: int = WEEK_MS,
    busy: Collection[str] = (),
    target_bytes: int = TARGET_BYTES,
) -> Maintained:
    """Join the small files of a window, or of all but the newest; then remove what is older than
    the retention and in no reader's view.

    `busy` names deliveries and replacements that may still be writing: what they wrote stays,
    however old it is. Plain files (parquet, json, csv) are not joined."""
    if retention_ms < HOUR_MS:
        raise UsageError(
            "the retention is too short: files that readers have open, or that are just being "
            "written, could be removed. Take 1h or more"
        )
    before = contents(table)
    if before.columns is None:
        return Maintained(0, 0, 0, 0)
    if table.format == "delta":
        with secrets_kept(table):
            chosen = sorted(before.files)[:-1] if window is None else [window]
            for each in chosen:
                _compact(table, each, before.files.get(each, []), target_bytes)
            removed = _vacuum(table, retention_ms, busy)
    else:
        removed = _sweep(Folder(table), retention_ms, busy)
    after = contents(table)
    files = [file for each in after.files.values() for file in each]
    count_before = sum(len(each) for each in before.files.values())
    return Maintained(count_before, len(files), sum(file.size for file in files), removed)


def _compact(table: Table, window: str, files: list[DataFile], target_bytes: int) -> None:
    """Join a window's small files. If the window is replaced at this moment, there is no need."""
    opened = DeltaLog(table).open()
    if opened is None or sum(file.size < target_bytes for file in files) < 2:
        return
    try:
        opened.optimize.compact([(WINDOW, "=", window)], target_size=target_bytes)
    except CommitFailedError:
        return


def _vacuum(table: Table, retention_ms: int, busy: Collection[str]) -> int:
    """Remove the files below the windows' folders that Delta does not need any more.

    Delta finds them, and would remove more: tables that lie inside this one's folder, and what slow
    deliveries have written."""
    opened = DeltaLog(table).open()
    if opened is None:
        return 0
    paths = [path for path in _unneeded(opened, retention_ms) if not _is_of(path, busy)]
    Storage(table).remove(paths)
    return sum(path.endswith(".parquet") for path in paths)


def _unneeded(table: DeltaTable, retention_ms: int) -> list[str]:
    hours = -(-retention_ms // HOUR_MS)
    found = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    return [path for path in found if path.startswith(f"{WINDOW}=")]


def _is_of(path: str, busy: Collection[str]) -> bool:
    """Whether a file lies in a folder of one of these; folders are called NAME-…"""
    return any(part.startswith(f"{name}-") for name in busy for part in path.split("/")[1:-1])


def _sweep(folder: Folder, retention_ms: int, busy: Collection[str]) -> int:
    """Remove what dead workers have left in the spool, and fences of deliveries that have ended
    without a row."""
    oldest = time.time() - retention_ms / 1000
    removed = 0
    with folder.locked():
        for left in folder.spooled():
            files = [path for path in left.rglob("*") if path.is_file()]
            newest = max(path.stat().st_mtime for path in [left, *files])
            if newest < oldest and not _is_of(f"spool/{left.name}/file", busy):
                folder.discard(left)
                removed += sum(path.name[0] not in "._" for path in files)
        for fence in folder.fences():
            if fence.stat().st_mtime < oldest and fence.name not in busy:
                fence.unlink()
    return removed
