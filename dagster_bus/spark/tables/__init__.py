"""Tables that take each delivery once."""

from dagster_bus.core.delivery import Delivery
from dagster_bus.spark.tables.delta import DeltaSink
from dagster_bus.spark.tables.replacing import open_replacement, replace_window
from dagster_bus.spark.tables.table import Replacement, Sink, Table, Written

__all__ = [
    "Replacement",
    "Sink",
    "Table",
    "Written",
    "open_replacement",
    "open_sink",
    "replace_window",
]


def open_sink(table: Table, delivery: Delivery) -> Sink:
    """A delivery's way into a table. Raises LeaseLost if a later lease has fenced it off."""
    return DeltaSink(table, delivery)
