"""Tables that take each delivery once."""

from dagster_bus.core.delivery import Delivery
from dagster_bus.spark.tables.declared import declared_table, tables_at
from dagster_bus.spark.tables.delta import DeltaSink
from dagster_bus.spark.tables.files import FileSink
from dagster_bus.spark.tables.maintaining import Maintained, maintain
from dagster_bus.spark.tables.reading import (
    WindowFiles,
    describe_windows,
    holds,
    read_table,
    read_written,
)
from dagster_bus.spark.tables.replacing import open_replacement, replace_window
from dagster_bus.spark.tables.table import Replacement, Sink, Table, Written

__all__ = [
    "Maintained",
    "Replacement",
    "Sink",
    "Table",
    "WindowFiles",
    "Written",
    "declared_table",
    "describe_windows",
    "holds",
    "maintain",
    "open_replacement",
    "open_sink",
    "read_table",
    "read_written",
    "replace_window",
    "tables_at",
]


def open_sink(table: Table, delivery: Delivery) -> Sink:
    """A delivery's way into a table. Raises LeaseLost if a later lease has fenced it off."""
    return DeltaSink(table, delivery) if table.format == "delta" else FileSink(table, delivery)
