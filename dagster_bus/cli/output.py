"""How commands speak: tables for people, JSON for programs, errors in one line."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dagster_bus.core.event import Published

SHORT = 12
"""So much of a table's last column is always shown."""


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, ensure_ascii=False, indent=2))


def print_rows(rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    """A table, or what is to be said if there is nothing to show."""
    if not rows:
        click.echo(empty)
        return
    width = max(Console().width, least_width(rows))
    Console(width=width).print(table_of(rows, width))


def table_of(rows: Sequence[Mapping[str, Any]], width: int) -> Table:
    """A table with the keys of its rows as headings. Each row stays on one line; if the screen is
    too narrow, the last column is cut."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    *headings, last = rows[0]
    least = _least_widths(rows)
    for heading in headings:
        side = _side(rows[0][heading])
        table.add_column(heading, justify=side, no_wrap=True, min_width=least[heading])
    room = max(least[last], least[last] + width - least_width(rows))
    side = _side(rows[0][last])
    table.add_column(last, justify=side, no_wrap=True, max_width=room, overflow="ellipsis")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def least_width(rows: Sequence[Mapping[str, Any]]) -> int:
    """What a table needs so that nothing is cut but the end of its last column: half a number is
    worse than a line that is too long."""
    widths = _least_widths(rows)
    return sum(widths.values()) + 2 * len(widths)


def _least_widths(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    widths = {
        heading: max(_cell(row[heading]).cell_len for row in [*rows, {heading: heading}])
        for heading in rows[0]
    }
    last = list(widths)[-1]
    return {**widths, last: min(widths[last], SHORT)}


def _side(value: Any) -> Any:
    return "right" if isinstance(value, int) and not isinstance(value, bool) else "left"


def _cell(value: Any) -> Text:
    """Plain text: what stands in an event or an error is never taken for markup."""
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun, in the singular where that is right."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def complain(message: str) -> None:
    click.echo(f"dagster-bus: {message}", err=True)


def stop_speaking() -> None:
    """Whoever read the output has seen enough; what is still said goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_position(position: Published, as_json: bool) -> None:
    """Where an event stands, in one line."""
    if as_json:
        click.echo(json.dumps(position._asdict()))
    else:
        again = "  (a duplicate: it was there before)" if position.duplicate else ""
        click.echo(f"{position.topic}/{position.partition}:{position.offset}  {position.id}{again}")


def as_time(ms: int) -> str:
    """A time in UTC, to the millisecond."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def as_second(ms: int) -> str:
    """A time in UTC, to the second."""
    return as_time(ms)[:19]


def as_age(ms: int) -> str:
    """How long something took, or is ago, in its two largest units: 5s, 3m 20s, 2d 4h."""
    seconds = max(0, ms) // 1_000
    parts = [
        f"{seconds // size % most}{unit}"
        for unit, size, most in _UNITS
        if seconds >= size or unit == "s"
    ]
    return " ".join(parts[:2])


_UNITS = (("d", 86_400, 1_000_000), ("h", 3_600, 24), ("m", 60, 60), ("s", 1, 60))


def printable(text: str) -> str:
    """A text of others without what a terminal would obey; lines stay lines."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def in_line(text: str) -> str:
    """The same in one line."""
    return printable(" ".join(text.split()))
