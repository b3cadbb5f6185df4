"""How commands speak: tables for people, JSON for programs, errors in one line."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from typing import Any, cast

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


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


def standard_input() -> Iterator[list[bytes]]:
    """Standard input in groups of lines, each group as soon as it is there."""
    stream = cast(BufferedReader, sys.stdin.buffer)
    rest = b""
    while chunk := stream.read1(1 << 20):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]
