"""Replacing what a window has, whatever the table's format."""

import re
from collections.abc import Collection

from pyspark.sql import DataFrame

from dagster_bus.errors import UsageError
from dagster_bus.spark.tables.delta_replacing import DeltaReplacement
from dagster_bus.spark.tables.files import FileReplacement
from dagster_bus.spark.tables.table import Replacement, Table, Written

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


def open_replacement(table: Table, window: str, *, name: str) -> Replacement:
    """Begin to replace a window: whatever comes into it from now on stops the replacement."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a replacement: it becomes a folder's name, so write letters, "
            "digits, '.', '_' and '-'"
        )
    kind = DeltaReplacement if table.format == "delta" else FileReplacement
    return kind(table, window, name=name)


def replace_window(
    table: Table,
    window: str,
    rows: DataFrame,
    *,
    name: str,
    including: Collection[str] = (),
) -> Written | None:
    """Replace all that a window has by other rows, atomically; nothing, if a replacement of this
    name was made before. The rows must hold all that the window is to have: where deliveries may
    still be coming in, begin with `open_replacement` before looking which events there are."""
    replacement = open_replacement(table, window, name=name)
    if replacement.done():
        return None
    written = replacement.write(rows)
    return written if replacement.commit(written, including) else None
