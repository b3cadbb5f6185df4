"""The demo: the shop, the bus, Dagster and Spark together, on this machine.

python -m definitions.demo           until Ctrl-C, with the UI to look around in
python -m definitions.demo --once    a bounded set of events, and their account at the end
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from dagster_bus import Bus
from dagster_bus.core.store import GroupProgress
from definitions.shop import Shop

PROJECT = Path(__file__).parent.parent
TOPICS = PROJECT / "topics.yaml"
GROUP = "order-history"
START_TIMEOUT_S = 90.0
ONCE_TIMEOUT_S = 170.0
DAGSTER_YAML = """\
telemetry:
  enabled: false
sensors:
  use_threads: true
  num_workers: 4
run_monitoring:
  enabled: true
  poll_interval_seconds: 5
"""

out = Console(highlight=False)


class Home:
    """Where the demo keeps all that it makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "data" / "order_history"
        self.log = folder / "dagster.log"
        self._dagster = folder / "dagster"

    def prepare(self) -> None:
        """Make the folders, and tell this process and its children where they are."""
        self._dagster.mkdir(parents=True, exist_ok=True)
        (self._dagster / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
        os.environ["DAGSTER_HOME"] = str(self._dagster)
        os.environ["BUS_STORE"] = f"sqlite:///{self.folder / 'bus.db'}"
        os.environ["DATA_DIR"] = str(self.folder / "data")


def main() -> int:
    options = _options()
    home = Home(PROJECT / ".demo" / ("once" if options.once else "stay"))
    if options.once:
        shutil.rmtree(home.folder, ignore_errors=True)
    home.prepare()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    port = options.port or _free_port()
    try:
        with _dagster(home, port), Bus.open(TOPICS) as bus:
            return _once(bus, home) if options.once else _stay(bus, home, port)
    except KeyboardInterrupt:
        out.print("\nStopped: Dagster and all its processes have ended.")
        return 0


def _stay(bus: Bus, home: Home, port: int) -> int:
    """Publish until interrupted; the poison comes now and then, by itself, so that it is seen."""
    _say_where_to_look(home, port)
    shop = Shop()
    beat = 0
    while True:
        bus.publish_many("orders.created", shop.orders(20))
        bus.publish_many("orders.cancelled", shop.cancellations(2))
        if beat % 60 == 20:
            bus.publish_many("orders.created", shop.poison(3))
            out.print("[red]Three orders in a currency without a rate were published.[/red]")
        if beat % 5 == 0:
            out.print(_in_one_line(bus.group(GROUP).progress()))
        beat += 1
        time.sleep(2)


def _once(bus: Bus, home: Home) -> int:
    """Publish a bounded set, wait until all of it is settled, and check the account."""
    started = time.monotonic()
    group = bus.group(GROUP)
    shop = Shop(seed=7)
    out.print("Publishing 2,000 orders and 200 cancellations …")
    bus.publish_many("orders.created", shop.orders(2_000))
    bus.publish_many("orders.cancelled", shop.cancellations(200))
    left = ONCE_TIMEOUT_S - (time.monotonic() - started)
    _wait(
        lambda: group.progress().reserved == 0 and group.progress().running > 0,
        left,
        group.progress,
    )
    out.print("A run has taken them. Publishing 5 orders in a currency without a rate …")
    bus.publish_many("orders.created", shop.poison(5))
    left = ONCE_TIMEOUT_S - (time.monotonic() - started)
    _wait(lambda: group.progress().lag == 0, left, group.progress)
    return _account(group.progress(), _rows(home))


def _account(progress: GroupProgress, rows: int) -> int:
    tally = progress.tally
    table = Table(title=f"Where the events of {GROUP} are", title_justify="left")
    table.add_column("")
    table.add_column("events", justify="right")
    table.add_row("published", f"{progress.published:,}", style="bold")
    table.add_row("processed", f"{tally.processed:,}")
    table.add_row("filtered out (orders by phone)", f"{tally.filtered:,}")
    table.add_row("dead-lettered", f"{tally.dead_lettered:,}")
    table.add_row("rows in the Delta table", f"{rows:,}")
    out.print(table)
    adds_up = progress.published == tally.settled and rows == tally.processed
    if adds_up and tally.dead_lettered:
        out.print("[green]It adds up: published = processed + filtered + dead-lettered.[/green]")
        return 0
    out.print("[red]It does not add up.[/red]")
    return 1


def _say_where_to_look(home: Home, port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    out.print(
        f"""
[bold]Dagster is at {url}[/bold]  (its log: {home.log})

  {url}/asset-groups      topics, the table they become, and its dead letters
  {url}/runs              a run for each batch of events
  {url}/assets/order_history/dead_letters    what went wrong for good, and why

Try, in another terminal:

  .venv/bin/dagster-bus groups
  .venv/bin/dagster-bus dlq list {GROUP}
      (first: export BUS_STORE={os.environ["BUS_STORE"]})

A shop now publishes orders. Ctrl-C ends everything.
"""
    )


def _in_one_line(progress: GroupProgress) -> str:
    tally = progress.tally
    return (
        f"published {progress.published:,} · processed {tally.processed:,} · "
        f"filtered {tally.filtered:,} · dead-lettered {tally.dead_lettered:,} · "
        f"on the way {progress.lag:,}"
    )


def _rows(home: Home) -> int:
    """The table's rows by an eye that knows nothing of the bus."""
    return int(DeltaTable(str(home.table)).to_pyarrow_dataset().count_rows())


def _wait(done: Callable[[], bool], seconds: float, progress: Callable[[], GroupProgress]) -> None:
    deadline = time.monotonic() + seconds
    said = ""
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"still not done after {seconds:.0f} s: {_in_one_line(progress())}")
        if (line := _in_one_line(progress())) != said:
            out.print(f"  {line}")
            said = line
        time.sleep(0.5)


@contextmanager
def _dagster(home: Home, port: int) -> Iterator[None]:
    """`dagster dev` in a process group of its own, which ends as a whole."""
    out.print("Starting Dagster (some seconds) …")
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml"]
    with home.log.open("w") as log:
        process = subprocess.Popen(  # noqa: S603  (our own command)
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            cwd=PROJECT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for_ui(process, port, home)
        yield
    finally:
        _end(process)


def _wait_for_ui(process: subprocess.Popen[bytes], port: int, home: Home) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"Dagster ended at once; see {home.log}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise SystemExit(f"Dagster did not answer within {START_TIMEOUT_S:.0f} s; see {home.log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group gently, then for good: runs and their JVMs are in it too."""
    for gentle in (True, False):
        try:
            os.killpg(process.pid, signal.SIGTERM if gentle else signal.SIGKILL)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


def _free_port() -> int:
    for port in (3000, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("no free port for the UI; name one with --port")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The demo of dagster-bus.")
    parser.add_argument("--once", action="store_true", help="stop when every event is settled")
    parser.add_argument("--port", type=int, help="the UI's port (3000, or a free one)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
