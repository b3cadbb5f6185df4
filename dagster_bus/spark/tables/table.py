"""What every kind of table is to a delivery: it takes the rows once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Table:
    """Where rows go: a folder or a URL, in a format, with options for whoever writes there."""

    path: str
    format: str = "delta"
    options: Mapping[str, str] = field(default_factory=dict)

    def named(self, name: str) -> "Table":
        """The table beside the others for one of several results of a pipeline."""
        return Table(f"{self.path.rstrip('/')}/{name}", self.format, self.options)


class Written(Protocol):
    """Rows that Spark has written for a delivery and nobody sees yet."""

    @property
    def rows(self) -> int: ...

    @property
    def file_count(self) -> int: ...


class Sink(Protocol):
    """One delivery's way into one table. Making it fences former holders of the delivery off."""

    def committed(self) -> bool:
        """Whether the table holds this delivery's rows already."""

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows where nobody sees them. Raises TableError, before anything is
        written, if they do not fit the table."""

    def commit(self, written: Written) -> None:
        """Make the rows visible, once. Raises LeaseLost if another worker fenced this one off."""
