"""The closing account: where every event of the shop is, for each group that reads it.

What should become of an event follows from its kind; what became of it the bus tells, and the
tables themselves.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal

import pyarrow.parquet as pq
from deltalake import DeltaTable
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dagster_bus import Bus
from dagster_bus.core.store import Tally
from dagster_bus.spec.loaded import LoadedSpec
from definitions.shop import Kind

Fate = Literal["processed", "filtered", "dead_lettered"]

FATES: Mapping[str, Mapping[Kind, Fate]] = {
    "order-history": {
        Kind.ORDER: "processed",
        Kind.CANCELLATION: "processed",
        Kind.PHONE_ORDER: "filtered",
        Kind.PHONE_CANCELLATION: "filtered",
        Kind.POISON: "dead_lettered",
    },
    "payments": {
        Kind.PAYMENT: "processed",
        Kind.NO_OBJECT: "dead_lettered",
        Kind.WRONG_TYPE: "dead_lettered",
        Kind.MISSING_FIELD: "dead_lettered",
        Kind.NOTHING_PAID: "dead_lettered",
    },
    "revenue": {Kind.PAYMENT: "processed"},
    "shipments": {
        Kind.SHIPMENT: "processed",
        Kind.LATE_SHIPMENT: "processed",
        Kind.GARBLED_SHIPMENT: "processed",
    },
}
"""What becomes of the kinds of events that reach each group. All that is processed is a row."""

MEANING = """\
Each event that was processed is a row of its group's table. Orders by phone were filtered out;
garbled payments, and orders in a currency without a rate, are in the dead letters."""


@dataclass(frozen=True, slots=True)
class Line:
    """One group's account, and what it should be."""

    group: str
    published: int
    tally: Tally
    rows: int
    expected: Tally

    @property
    def adds_up(self) -> bool:
        return (
            self.published == self.tally.settled
            and self.tally == self.expected
            and self.rows == self.expected.processed
        )


def expected(kinds: Mapping[Kind, int]) -> dict[str, Tally]:
    """How the events of each group should end, if so many of each kind were published."""
    ends = {group: Counter[str]() for group in FATES}
    for group, fates in FATES.items():
        for kind, fate in fates.items():
            ends[group][fate] += kinds.get(kind, 0)
    return {group: Tally(**counts) for group, counts in ends.items()}


def accounts(bus: Bus, spec: LoadedSpec, kinds: Mapping[Kind, int]) -> list[Line]:
    """The account of each group, as the bus and the tables tell it now."""
    return [
        Line(group, progress.published, progress.tally, rows_of(spec.table_path(group)), tally)
        for group, tally in expected(kinds).items()
        for progress in [bus.group(group).progress()]
    ]


def rows_of(table: str) -> int:
    """The rows of a Delta table, counted from the files that its log names; 0 if there is none."""
    if not DeltaTable.is_deltatable(table):
        return 0
    return sum(pq.read_metadata(file).num_rows for file in DeltaTable(table).file_uris())


def close(lines: Iterable[Line], out: Console) -> int:
    """Show the account. The exit code is 0 only if it adds up for every group."""
    table = Table("group", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("published", "processed", "filtered", "dead-lettered", "rows"):
        table.add_column(name, justify="right")
    table.add_column("adds up")
    wrong = []
    for line in lines:
        tally = line.tally
        counts = (line.published, tally.processed, tally.filtered, tally.dead_lettered, line.rows)
        mark = "[green]yes[/green]" if line.adds_up else "[red]NO[/red]"
        table.add_row(line.group, *(f"{count:,}" for count in counts), mark)
        if not line.adds_up:
            wrong.append(line)
    out.print(table)
    for line in wrong:
        out.print(f"[red]{line.group} does not add up: {_in_words(line.expected)} were due.[/red]")
    if not wrong:
        out.print("[green]It adds up: published = processed + filtered + dead-lettered.[/green]")
        out.print(MEANING)
    return 1 if wrong else 0


def _in_words(tally: Tally) -> str:
    counts = ((each.name, getattr(tally, each.name)) for each in fields(tally))
    return ", ".join(f"{count:,} {name.replace('_', '-')}" for name, count in counts if count)
