"""What it takes from an event to the committed table, through a real Dagster.

Beside it, in the same Dagster and in turns with it, the floor: a bare sensor that looks at a file,
and a run that does nothing. Each round begins at another moment of the daemon's own rhythm.

python -m benchmarks.dagster [--quick]    minutes; the table goes to benchmarks/results/
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from benchmarks.events import new_folder, remove
from benchmarks.measuring import Fact, machine, out, show, write
from dagster_bus import Bus
from dagster_bus.orchestration.dev import DagsterDev
from dagster_bus.spark.server import SparkServer
from dagster_bus.spark.session import session_config
from dagster_bus.spark.warm import SWITCH
from dagster_bus.spec.load import load_spec

TITLE = "From an event to the committed table, through Dagster"
EVENTS = 100
COLD_ROUNDS, WARM_ROUNDS = 5, 9
GOAL_S = 3.0
PATIENCE_S = 180.0
RHYTHM_S = 5.0
"""How often Dagster's daemon comes by."""

PROJECT = {
    "workspace.yaml": "load_from: [{python_module: measured}]",
    "topics.yaml": """\
        version: 1
        store: sqlite:///bus.db
        spark:
          master: local[2]
          conf: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 2}
        topics:
          orders: {schema: {fields: {order_id: string, n: bigint}}}
        groups:
          history:
            topics: [orders]
            sql: SELECT order_id, n FROM events
            table: {path: data/history}
        """,
    "measured.py": """\
        from pathlib import Path

        import dagster as dg
        from dagster_bus import load_definitions

        HERE = Path(__file__).parent


        @dg.op
        def nothing() -> None:
            (HERE / "floor-done").touch()


        @dg.job(executor_def=dg.in_process_executor)
        def empty() -> None:
            nothing()


        @dg.sensor(
            job=empty,
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
        def bare(context):
            mark = HERE / "floor"
            if not mark.exists():
                return dg.SkipReason("nothing")
            mark.unlink()
            return dg.RunRequest()


        defs = dg.Definitions.merge(
            load_definitions(HERE / "topics.yaml"), dg.Definitions(jobs=[empty], sensors=[bare])
        )
        """,
}


def main() -> None:
    options = _options()
    cold_rounds, warm_rounds = (1, 2) if options.quick else (COLD_ROUNDS, WARM_ROUNDS)
    folder = new_folder()
    for name, text in PROJECT.items():
        (folder / name).write_text(dedent(text), encoding="utf-8")
    try:
        cold, cold_floor = _measured(folder, cold_rounds, warm=False)
        warm, warm_floor = _measured(folder, warm_rounds, warm=True)
    finally:
        remove(folder)
    facts = [
        _fact("Spark of the run's own", cold, cold_floor, "none"),
        _fact("warm Spark", warm, warm_floor, f"at most {GOAL_S:.0f} s above the floor"),
    ]
    show([], facts)
    if not options.quick:
        write("dagster", TITLE, machine("dagster", "pyspark"), [], facts)


def _measured(folder: Path, rounds: int, *, warm: bool) -> tuple[list[float], list[float]]:
    """Seconds to the table, and of the floor, in turns."""
    os.environ[SWITCH] = "1" if warm else "0"
    tables, floors = [], []
    dagster = DagsterDev(folder, folder / "dagster")
    with _spark(folder, warm), dagster, Bus.open(folder / "topics.yaml") as bus:
        for number in range(rounds + 1):
            floor, table = _floor(folder), _table(folder, bus)
            if number:  # the first one finds nothing ready
                floors.append(floor)
                tables.append(table)
                out.print(f"  to the table {table:.1f} s, the floor {floor:.1f} s")
    return tables, floors


@contextmanager
def _spark(folder: Path, warm: bool) -> Iterator[None]:
    if not warm:
        yield
        return
    server = SparkServer(folder, session_config(load_spec(folder / "topics.yaml").spec.spark))
    server.start(say=out.print)
    try:
        yield
    finally:
        server.stop()


def _floor(folder: Path) -> float:
    done = folder / "floor-done"
    done.unlink(missing_ok=True)
    return _timed((folder / "floor").touch, done.exists)


def _table(folder: Path, bus: Bus) -> float:
    commits = folder / "data/history/_delta_log"
    before = len(list(commits.glob("*.json")))
    orders = [{"order_id": f"A-{n}", "n": n} for n in range(EVENTS)]
    return _timed(
        lambda: bus.publish_many("orders", orders),
        lambda: len(list(commits.glob("*.json"))) > before,
    )


def _timed(begin: Callable[[], object], is_done: Callable[[], bool]) -> float:
    time.sleep(random.uniform(0, RHYTHM_S))
    started = time.monotonic()
    begin()
    while not is_done():
        if time.monotonic() - started > PATIENCE_S:
            raise TimeoutError(f"nothing came in {PATIENCE_S:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - started


def _fact(what: str, table: list[float], floor: list[float], goal: str) -> Fact:
    seconds, least = statistics.median(table), statistics.median(floor)
    above = f"{seconds - least:+.1f} s beside the floor of {least:.1f} s"
    return Fact(
        f"{EVENTS} events to the committed table, {what}, median of {len(table)}",
        f"{seconds:.1f} s, {above}",
        goal,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure from event to table, through Dagster.")
    parser.add_argument("--quick", action="store_true", help="few rounds, and no results written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
