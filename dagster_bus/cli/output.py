"""How commands speak: tables for people, JSON for programs, errors in one line."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, ensure_ascii=False, indent=2))


def print_rows(rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    """A table with the keys of its rows as headings."""
    if not rows:
        click.echo(empty)
        return
    table = Table(header_style="bold")
    for heading, value in rows[0].items():
        number = isinstance(value, int) and not isinstance(value, bool)
        table.add_column(heading.replace("_", " "), justify="right" if number else "left")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console().print(table)


def _cell(value: Any) -> Text:
    """Plain text: what stands in an event or an error is never taken for markup."""
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


def complain(message: str) -> None:
    click.echo(f"dagster-bus: {message}", err=True)


def standard_input() -> Iterator[bytes]:
    """The lines of standard input as they come, undecoded."""
    return iter(sys.stdin.buffer)
