"""What the demo runs on: a store, a warm Spark, and a folder that nobody else uses."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from dagster_bus import BusError
from dagster_bus.orchestration.dev import DAGSTER_YAML, DagsterDev
from dagster_bus.spark.server import SparkServer
from dagster_bus.spark.session import is_local, session_config
from dagster_bus.spark.warm import SWITCH
from dagster_bus.spec.load import load_spec

PROJECT = Path(__file__).parent.parent
TOPICS = PROJECT / "topics.yaml"
LOCK = "lock"

RUNS_AT_ONCE = """\
concurrency:
  runs:
    max_concurrent_runs: {}
"""


@contextmanager
def alone_in(home: Path) -> Iterator[None]:
    """Refuse to run beside another demo that uses the same folder."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusError(f"another demo is running in {home}; stop it first") from None
        yield


def dagster_in(home: Path, port: int | None) -> DagsterDev:
    """A Dagster that starts no more runs at a time than this machine has processors, two at least,
    so that the UI stays quick."""
    folder = home / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    at_once = RUNS_AT_ONCE.format(max(2, os.cpu_count() or 2))
    (folder / "dagster.yaml").write_text(DAGSTER_YAML + at_once, encoding="utf-8")
    return DagsterDev(PROJECT, folder, port=port)


@contextmanager
def store_in(home: Path, kind: str, out: Console, *, once: bool) -> Iterator[str]:
    """The address of the demo's store: a file, or a database of a MongoDB that runs meanwhile."""
    if kind == "sqlite":
        yield f"sqlite:///{home / 'bus.db'}"
        return
    from tools.mongodb import mongo_url

    out.print("Starting MongoDB …")
    database = f"demo_once_{time.time_ns()}" if once else "demo"
    with mongo_url(database, home / "mongo") as url:
        yield url


@contextmanager
def warm_spark(out: Console) -> Iterator[Callable[[float], None]]:
    """A warm Spark server that starts while other things do; what is given waits for it, so many
    seconds at most. A run that comes before it is there has a Spark of its own."""
    config = session_config(load_spec(TOPICS).spec.spark)
    if os.environ.get(SWITCH) == "0" or not is_local(config):
        yield lambda _: None
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
        yield starting.join
    finally:
        ending.set()
        server.stop()
        starting.join(10)  # it may have been on the point of starting one
        server.stop()
