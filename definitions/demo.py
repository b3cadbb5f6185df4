"""The demo: the shop, the bus, Dagster and Spark together, on this machine.

python -m definitions.demo           until Ctrl-C, with the UI to look around in
python -m definitions.demo --once    a bounded set of events, and their account at the end

With --store mongo the log is on MongoDB: on the server of MONGO_URL, or one started for the demo.
A Spark server is kept warm for the runs meanwhile, unless DAGSTER_BUS_WARM_SPARK=0.
"""

import argparse
import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from dagster_bus import Bus, BusError
from dagster_bus.core.groups import Group
from dagster_bus.core.store import GroupProgress
from dagster_bus.orchestration.dev import DagsterDev
from dagster_bus.spark.server import SparkServer
from dagster_bus.spark.session import is_local, session_config
from dagster_bus.spark.warm import FOLDER, SWITCH
from dagster_bus.spec.load import load_spec
from definitions.shop import Shop

PROJECT = Path(__file__).parent.parent
GROUP = "order-history"
LOCK = "lock"
ONCE_TIMEOUT_S = 300.0
BEAT_S = 2.0

out = Console(highlight=False, soft_wrap=True)


def main() -> int:
    options = _options()
    home = options.home.resolve() / f"{options.store}-{'once' if options.once else 'stay'}"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    os.environ["DATA_DIR"] = str(home / "data")
    os.environ[FOLDER] = str(home / "spark")
    try:
        with _alone_in(home):
            return _run(home, options)
    except KeyboardInterrupt:
        out.print("\nStopped. Dagster and everything it started have ended.")
        return 0
    except BusError as error:
        out.print(f"[red]{error}[/red]")
        return 1


def _run(home: Path, options: argparse.Namespace) -> int:
    if options.once:
        SparkServer(PROJECT, {}).stop()  # if a demo before this one was killed
        for made in set(home.iterdir()) - {home / LOCK}:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    elif (home / "data").exists():
        out.print(f"Going on where the last demo stopped; delete {home} to begin anew.")
    with _store(home, options) as url:
        os.environ["BUS_STORE"] = url
        out.print("Starting Dagster and Spark; this takes some seconds …")
        dagster = DagsterDev(PROJECT, home / "dagster", port=options.port)
        with _warm_spark(), dagster, Bus.open(PROJECT / "topics.yaml") as bus:
            if options.once:
                return _once(bus, dagster, home / "data" / "order_history")
            _stay(bus, dagster)
    return 0


@contextmanager
def _store(home: Path, options: argparse.Namespace) -> Iterator[str]:
    """The address of the demo's store: a file, or a database of a MongoDB that runs meanwhile."""
    if options.store == "sqlite":
        yield f"sqlite:///{home / 'bus.db'}"
        return
    from tools.mongodb import mongo_url

    out.print("Starting MongoDB …")
    database = f"demo_once_{time.time_ns()}" if options.once else "demo"
    with mongo_url(database, home / "mongo") as url:
        yield url


@contextmanager
def _warm_spark() -> Iterator[None]:
    """A warm Spark server, started beside Dagster. A run that comes before it is there, or if it
    can't be started, has a Spark of its own."""
    config = session_config(load_spec(PROJECT / "topics.yaml").spec.spark)
    if os.environ.get(SWITCH) == "0" or not is_local(config):
        yield
        return
    server = SparkServer(PROJECT, config)
    ending = threading.Event()

    def start() -> None:
        try:
            server.start()
        except BusError as error:
            if not ending.is_set():
                out.print(f"[yellow]Going on without a warm Spark: {error}[/yellow]")

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    try:
        yield
    finally:
        ending.set()
        server.stop()
        starting.join(10)  # it may have been on the point of starting one
        server.stop()


@contextmanager
def _alone_in(home: Path) -> Iterator[None]:
    """Refuse to run beside another demo that uses the same folder."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusError(f"another demo is running in {home}; stop it first") from None
        yield


def _stay(bus: Bus, dagster: DagsterDev) -> None:
    """Publish until interrupted, with a little poison now and then."""
    _say_where_to_look(dagster)
    shop = Shop()
    group = bus.group(GROUP)
    beat = 0
    while True:
        beat += 1
        bus.publish_many("orders.created", shop.orders(8))
        bus.publish_many("orders.cancelled", shop.cancellations(1))
        if beat % 60 == 5:
            bus.publish_many("orders.created", shop.poison(3))
            out.print("[red]published 3 orders without a rate; they hold up their batch[/red]")
        if beat % 5 == 0:
            out.print(_in_one_line(group.progress()))
        time.sleep(BEAT_S)


def _once(bus: Bus, dagster: DagsterDev, table: Path) -> int:
    """Publish a bounded set, wait until all of it is settled, and check the account."""
    started = time.monotonic()
    deadline = started + ONCE_TIMEOUT_S
    shop = Shop(seed=7)
    group = bus.group(GROUP)
    out.print(f"Dagster is at {dagster.url} for as long as this takes; the table is {table}")
    out.print("Publishing 2,000 orders and 200 cancellations.")
    bus.publish_many("orders.created", shop.orders(2_000))
    bus.publish_many("orders.cancelled", shop.cancellations(200))
    _wait(group, deadline, lambda progress: progress.reserved + progress.running > 0)
    out.print("A run has been requested for them. Publishing 5 orders that no attempt can convert;")
    out.print("there are three attempts, and then one more run that finds those that fail alone.")
    bus.publish_many("orders.created", shop.poison(5))
    _wait(group, deadline, lambda progress: progress.lag == 0)
    out.print(f"All settled after {time.monotonic() - started:.0f} s.")
    return _account(group.progress(), _rows(table))


def _wait(group: Group, deadline: float, done: Callable[[GroupProgress], bool]) -> None:
    said = ""
    while not done(progress := group.progress()):
        line = _in_one_line(progress)
        if time.monotonic() > deadline:
            raise BusError(f"still not done after {ONCE_TIMEOUT_S:.0f} s: {line}")
        if line != said:
            out.print(f"  {line}")
            said = line
        time.sleep(0.5)


def _account(progress: GroupProgress, rows: int) -> int:
    tally = progress.tally
    table = Table("", title=f"Where the events of {GROUP} are", title_justify="left")
    table.add_column("events", justify="right")
    table.add_row("published", f"{progress.published:,}", style="bold")
    table.add_row("processed", f"{tally.processed:,}")
    table.add_row("filtered out (orders by phone)", f"{tally.filtered:,}")
    table.add_row("dead-lettered", f"{tally.dead_lettered:,}", end_section=True)
    table.add_row("rows in the Delta table", f"{rows:,}")
    out.print(table)
    if progress.published == tally.settled and rows == tally.processed and tally.dead_lettered:
        out.print("[green]It adds up: published = processed + filtered + dead-lettered.[/green]")
        return 0
    out.print("[red]It does not add up.[/red]")
    return 1


def _rows(table: Path) -> int:
    """The rows in the files that the table's log names, counted from the files themselves."""
    return sum(pq.read_metadata(file).num_rows for file in DeltaTable(str(table)).file_uris())


def _say_where_to_look(dagster: DagsterDev) -> None:
    out.print(
        f"""
[bold]Dagster is at {dagster.url}[/bold]  (its log: {dagster.log})

  {dagster.url}/asset-groups
      topics, the table they become, and its dead letters: click the two boxes to open them
  {dagster.url}/runs
      a run for each batch of events
  {dagster.url}/assets/order_history/dead_letters
      what failed for good, and why: after a minute or two, when three attempts are used up and
      a last run has found out which orders fail alone

A shop now publishes orders. Try, in another terminal:

  export BUS_STORE={os.environ["BUS_STORE"]}
  .venv/bin/dagster-bus groups
  .venv/bin/dagster-bus dlq list {GROUP}

Stop the sensor in the UI (Automation) and the events wait; start it and they are worked off.
Ctrl-C ends everything.
"""
    )


def _in_one_line(progress: GroupProgress) -> str:
    tally = progress.tally
    return (
        f"published {progress.published:,} · processed {tally.processed:,} · "
        f"filtered {tally.filtered:,} · dead-lettered {tally.dead_lettered:,} · "
        f"on the way {progress.lag:,}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The demo of dagster-bus.")
    parser.add_argument("--once", action="store_true", help="stop when every event is settled")
    parser.add_argument("--store", choices=["sqlite", "mongo"], default="sqlite")
    parser.add_argument("--port", type=int, help="the UI's port (3000, or any that is free)")
    parser.add_argument(
        "--home", type=Path, default=PROJECT / ".demo", help="where to keep all that is made"
    )
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
