"""How fast the embedded log takes events, beside raw SQLite writing the same rows in the same run.

    make bench                      all of it
    make bench ARGS="--events 50000"

Both sides are durable: WAL, synchronous=FULL, one commit for each batch. The result is a ratio,
which says more than a number of one machine; a table of it goes to benchmarks/results/.
"""

import argparse
import json
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Message, NewEvent, encode_payload, uuid7
from dagster_bus.core.topic import TopicConfig
from dagster_bus.stores import open_store
from dagster_bus.stores.sqlite import QUERIES
from dagster_bus.stores.sqlite_connection import load_migrations

T = TypeVar("T")

RESULTS = Path(__file__).parent / "results"
BATCHES = (1, 100, 1_000, 10_000)
ROUNDS = 3


@dataclass(frozen=True)
class Measured:
    batch: int
    events: int
    raw_per_s: float
    bus_per_s: float

    @property
    def ratio(self) -> float:
        return self.bus_per_s / self.raw_per_s


def main() -> None:
    options = _options()
    measured = [_measure(batch, min(options.events, batch * 2_000)) for batch in BATCHES]
    _show(measured)
    _write(measured)


def _measure(batch: int, events: int) -> Measured:
    """The best of some rounds for each side, taken in turns so that both meet the same weather."""
    payloads = [{"order_id": f"A-{n:08}", "note": "x" * 150} for n in range(events)]
    raw = bus = 0.0
    for _ in range(ROUNDS):
        raw = max(raw, _rate(events, lambda path: _raw(path, payloads, batch)))
        bus = max(bus, _rate(events, lambda path: _bus(path, payloads, batch)))
    return Measured(batch, events, raw, bus)


def _rate(events: int, prepare: Callable[[Path], Callable[[], None]]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(Path(folder) / "bus.db")
        started = time.perf_counter()
        work()
        return events / (time.perf_counter() - started)


def _raw(path: Path, payloads: list[dict[str, str]], batch: int) -> Callable[[], None]:
    """The same rows, ready made, through executemany."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(load_migrations()[0])
    rows = [_row(offset, payload) for offset, payload in enumerate(payloads, 1)]

    def work() -> None:
        for chunk in _chunks(rows, batch):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(QUERIES["insert_event"], chunk)
            connection.execute("COMMIT")
        connection.close()

    return work


def _row(offset: int, payload: dict[str, str]) -> tuple[object, ...]:
    event = NewEvent(
        "orders", 0, uuid7(0), None, None, 1, "{}", 2, None, None, encode_payload(payload), None
    )
    return (1 << 40 | offset, 0, *event[2:])


def _bus(path: Path, payloads: list[dict[str, str]], batch: int) -> Callable[[], None]:
    store = open_store(f"sqlite:///{path}")
    topics = [TopicConfig("orders", 1)]
    store.declare(topics)
    bus = Bus(store, topics)
    messages = [Message(payload) for payload in payloads]

    def work() -> None:
        for chunk in _chunks(messages, batch):
            bus.publish_many("orders", chunk)
        bus.close()

    return work


def _chunks(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _machine() -> dict[str, str]:
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "dagster-bus": version("dagster-bus"),
    }


def _show(measured: list[Measured]) -> None:
    table = Table(title="Durable append, events of about 200 bytes", title_justify="left")
    for heading in ("batch", "events", "raw SQLite, events/s", "bus, events/s", "ratio"):
        table.add_column(heading, justify="right")
    for row in measured:
        table.add_row(*_cells(row))
    Console().print(table)


def _cells(row: Measured) -> tuple[str, ...]:
    rates = (f"{row.raw_per_s:,.0f}", f"{row.bus_per_s:,.0f}", f"{row.ratio:.2f}")
    return (f"{row.batch:,}", f"{row.events:,}", *rates)


def _write(measured: list[Measured]) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = [{**asdict(row), "ratio": row.ratio} for row in measured]
    text = json.dumps({"machine": _machine(), "append": rows}, indent=2)
    (RESULTS / "log.json").write_text(text + "\n", encoding="utf-8")
    lines = [
        "# Durable append to the embedded log",
        "",
        *(f"- {name}: {value}" for name, value in _machine().items()),
        "",
        "| batch | events | raw SQLite, events/s | bus, events/s | ratio |",
        "|---:|---:|---:|---:|---:|",
        *(f"| {' | '.join(_cells(row))} |" for row in measured),
    ]
    (RESULTS / "log.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the embedded log.")
    parser.add_argument("--events", type=int, default=100_000, help="events at most (100000)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
