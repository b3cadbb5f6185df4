"""What every kind of table is to a delivery: it takes the rows once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Table:
    """Where rows go: a folder or a URL, in a format, with options for whoever writes there.

    Options may hold secrets and are not shown."""

    path: str
    format: str = "delta"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def named(self, name: str) -> "Table":
        """The table beside the others for one of several results of a pipeline."""
        return Table(f"{self.path.rstrip('/')}/{name}", self.format, self.options)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows, by its path from the table's folder on."""

    path: str
    size: int
    modified_ms: int
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that Spark has written and nobody sees yet."""

    columns: StructType
    files: tuple[DataFile, ...]
    rows: int

    @property
    def file_count(self) -> int:
        return len(self.files)


class Sink(Protocol):
    """One delivery's way into one table. Making it fences former holders of the delivery off."""

    def committed(self) -> bool:
        """Whether the table holds this delivery's rows already."""

    def brought(self) -> Written | None:
        """What the delivery has brought into the table; None if that cannot be told apart from
        other rows any more."""

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows where nobody sees them. Raises TableError, before anything is
        written, if they do not fit the table."""

    def commit(self, written: Written) -> None:
        """Make the rows visible, once. Raises LeaseLost if another worker fenced this one off."""


class Replacement(Protocol):
    """Other rows for one window of a table. Making it looks at what the window has: if that has
    changed when the rows are to take its place, they are refused."""

    def done(self) -> bool:
        """Whether a replacement of this name has been made in this window."""

    def has(self, delivery: str) -> bool:
        """Whether the table held a delivery's rows when this began."""

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows where nobody sees them. Raises TableError, before anything is
        written, if they do not fit the table."""

    def commit(self, written: Written, including: Collection[str] = ()) -> bool:
        """Put the rows in the place of all that the window has; not if that was done before.
        Raises WindowChanged if a delivery came into the window meanwhile.

        `including` names open deliveries whose events the new rows include: they count as committed
        with these rows, and whoever works on them finds that nothing is left to do."""
