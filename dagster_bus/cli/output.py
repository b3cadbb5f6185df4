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


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, ensure_ascii=False, indent=2))


def print_rows(rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    """A table with the keys of its rows as headings. Each row stays on one line; if the screen is
    too narrow, the last column is cut."""
    if not rows:
        click.echo(empty)
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    *headings, last = rows[0]
    for heading in headings:
        width = max(len(_cell(row[heading])) for row in [*rows, {heading: heading}])
        table.add_column(heading, justify=_side(rows[0][heading]), no_wrap=True, min_width=width)
    table.add_column(last, justify=_side(rows[0][last]), no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console().print(table)


def _side(value: Any) -> Any:
    return "right" if isinstance(value, int) and not isinstance(value, bool) else "left"


def _cell(value: Any) -> Text:
    """Plain text: what stands in an event or an error is never taken for markup."""
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular where that is right."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
