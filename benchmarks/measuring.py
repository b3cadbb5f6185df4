"""What was measured, as a table for people and as files to keep.

A result is a ratio of two rates taken in one run, in turns, so that both meet the same weather: it
says more than a number of one machine.
"""

import json
import os
import platform
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
ROUNDS = 9

T = TypeVar("T")

out = Console(width=max(Console().width, 130))


@dataclass(frozen=True)
class Comparison:
    """Events a second of two ways to do the same."""

    what: str
    events: int
    beside: str
    beside_per_s: float
    bus_per_s: float
    goal: float | None = None
    """What the ratio should reach at least."""

    @property
    def ratio(self) -> float:
        return self.bus_per_s / self.beside_per_s

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            f"{self.events:,}",
            self.beside,
            f"{self.beside_per_s:,.0f}",
            f"{self.bus_per_s:,.0f}",
            f"{self.ratio:.2f}",
            f"≥ {self.goal}" if self.goal else "",
        )


HEADINGS = ("what", "events", "beside", "that, events/s", "bus, events/s", "ratio", "goal")


@dataclass(frozen=True)
class Fact:
    """A number by itself, with what it should be."""

    what: str
    value: str
    goal: str


Prepared = tuple[Callable[[], None], Callable[[], None]]
"""The work to be timed, and how to tidy up behind it."""


def compare(
    what: str,
    events: int,
    beside: str,
    raw: Callable[[], Prepared],
    bus: Callable[[], Prepared],
    goal: float | None = None,
    rounds: int = ROUNDS,
) -> Comparison:
    """Both in turns for some rounds: the middle one of the rounds' ratios, and that round's rates.
    What slows the machine down for a while slows both sides of a round."""
    taken = [(seconds(raw), seconds(bus)) for _ in range(rounds)]
    raw_s, bus_s = sorted(taken, key=lambda pair: pair[0] / pair[1])[rounds // 2]
    return Comparison(what, events, beside, events / raw_s, events / bus_s, goal)


def seconds(prepare: Callable[[], Prepared]) -> float:
    work, tidy = prepare()
    try:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    finally:
        tidy()


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def machine(*packages: str) -> dict[str, str]:
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{package: _version(package) for package in ("dagster-bus", *packages)},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def show(comparisons: Iterable[Comparison], facts: Iterable[Fact]) -> None:
    table = Table(title="Events of about 200 bytes", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("what", "beside") else "right")
    for row in comparisons:
        table.add_row(*row.cells)
    if table.row_count:
        out.print(table)
    for fact in facts:
        out.print(f"{fact.what}: [bold]{fact.value}[/bold] (goal: {fact.goal})")


def write(
    name: str,
    title: str,
    about: dict[str, str],
    comparisons: Sequence[Comparison],
    facts: Sequence[Fact],
) -> None:
    """Keep the results as NAME.md and NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    data = {
        "machine": about,
        "comparisons": [{**asdict(row), "ratio": row.ratio} for row in comparisons],
        "facts": [asdict(fact) for fact in facts],
    }
    text = json.dumps(data, indent=2, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    lines = [
        f"# {title}",
        "",
        *(f"- {key}: {value}" for key, value in about.items()),
        "",
        *_rows(comparisons),
        *(f"- {fact.what}: **{fact.value}** (goal: {fact.goal})" for fact in facts),
    ]
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _rows(comparisons: Sequence[Comparison]) -> list[str]:
    """A table, if there is anything to compare."""
    if not comparisons:
        return []
    return [
        f"| {' | '.join(HEADINGS)} |",
        "|---|---:|---|---:|---:|---:|---:|",
        *(f"| {' | '.join(row.cells)} |" for row in comparisons),
        "",
    ]
