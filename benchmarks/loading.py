"""How long a code location takes to load, and one tick that looks after all of its groups.

Beside it the floor: as many bare assets, jobs and sensors, by Dagster's own decorators. Seconds are
those of the processor, each taken in a fresh process: a machine that is busy counts less.

python -m benchmarks.loading [TOPICS GROUPS] [--quick]    the table goes to benchmarks/results/
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring import Fact, machine, show, write
from dagster_bus.spec.kept import SETTLED_NS

TITLE = "Loading many topics and groups into Dagster"
TOPICS, GROUPS = 1_000, 2_000
ROUNDS = 3
GOAL_S = 5.0

Numbers = tuple[float, ...]


def project(folder: Path, topics: int, groups: int, head: str = "") -> Path:
    """A file with so many topics and groups, each of which reads one topic."""
    lines = ["version: 1", head or "store: sqlite:///nowhere/bus.db", "topics:"]
    lines += [
        f"  t{number}.created: {{schema: {{fields: {{id: string, n: bigint}}}}}}"
        for number in range(topics)
    ]
    lines += ["groups:"]
    for number in range(groups):
        lines += [
            f"  g{number}:",
            f"    topics: [t{number % topics}.created]",
            "    sql: SELECT id, n FROM events",
            "    slo: {max_lag: 1000, max_age: 5m}",
            f"    table: {{path: data/g{number}}}",
        ]
    file = folder / "topics.yaml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def main() -> None:
    options = _options()
    topics, groups = options.numbers or (TOPICS, GROUPS)
    rounds = 1 if options.quick else ROUNDS
    what = f"{topics:,} topics and {groups:,} groups"
    made, checked = _median(rounds, loading, topics, groups)
    (floor,) = _median(rounds, bare, topics, groups)
    opened, tick = _median(rounds, ticking, topics, groups)
    facts = [
        Fact(
            f"{what} loaded: load_definitions and Dagster's own checks",
            f"{made + checked:.1f} s ({made:.1f} s and {checked:.1f} s)",
            f"at most {GOAL_S:.0f} s",
        ),
        Fact("as many bare assets, jobs and sensors, without checks", f"{floor:.1f} s", "none"),
        Fact(f"the bus of {what} opened again", f"{opened * 1000:.0f} ms", "at most 50 ms"),
        Fact(
            f"one tick of the sensor that {groups:,} groups share, with nothing new",
            f"{tick:.2f} s",
            "at most 1 s",
        ),
    ]
    show([], facts)
    if not (options.quick or options.numbers):
        write("loading", TITLE, machine("dagster"), [], facts)


def loading(topics: int, groups: int) -> Numbers:
    """Seconds for the definitions, and for what Dagster does with them."""
    from dagster_bus import load_definitions

    with tempfile.TemporaryDirectory() as folder:
        file = project(Path(folder), topics, groups)
        began = time.process_time()
        defs = load_definitions(file)
        loaded = time.process_time()
        defs.get_repository_def().load_all_definitions()
        return loaded - began, time.process_time() - loaded


def bare(topics: int, groups: int) -> Numbers:
    """Seconds for definitions that do nothing."""
    import dagster as dg

    @dg.op
    def nothing() -> None: ...

    def group(name: str, topic: str) -> tuple[Any, Any, Any]:
        @dg.asset(name=name, deps=[topic])
        def table() -> None: ...

        @dg.job(name=f"{name}_job")
        def work() -> None:
            nothing()

        @dg.sensor(name=f"{name}_sensor", job_name=f"{name}_job")
        def tick() -> None: ...

        return table, work, tick

    began = time.process_time()
    made = [group(f"g{number}", f"t{number % topics}") for number in range(groups)]
    defs = dg.Definitions(
        assets=[
            *(dg.AssetSpec(f"t{number}") for number in range(topics)),
            *(dg.AssetSpec(["letters", f"g{number}"]) for number in range(groups)),
            *(table for table, _, _ in made),
        ],
        jobs=[work for _, work, _ in made],
        sensors=[tick for _, _, tick in made],
    )
    defs.get_repository_def().load_all_definitions()
    return (time.process_time() - began,)


def ticking(topics: int, groups: int) -> Numbers:
    """Seconds to open the bus, and for a tick, when both have been done before."""
    from dagster import DagsterInstance, build_sensor_context

    from dagster_bus import Bus, BusResource, load_definitions
    from dagster_bus.orchestration.sensors import SHARED

    with _settled_project(topics, groups) as file, DagsterInstance.ephemeral() as instance:
        defs = load_definitions(file)
        sensor = defs.resolve_sensor_def(SHARED)
        bus = BusResource(topics_yaml=str(file))

        def tick() -> None:
            context = build_sensor_context(instance, definitions=defs, resources={"bus": bus})
            sensor(context)

        opened = _second(lambda: Bus.open(file).close())
        return opened, _second(tick)


@contextmanager
def _settled_project(topics: int, groups: int) -> Iterator[Path]:
    """A file that was not written just now, so that processes keep what they have read."""
    with tempfile.TemporaryDirectory() as folder:
        head = "store: sqlite:///bus.db\ndagster: {sensors: shared}"
        file = project(Path(folder), topics, groups, head)
        time.sleep(SETTLED_NS / 1e9)
        yield file


def _second(work: Callable[[], None]) -> float:
    work()
    began = time.process_time()
    work()
    return time.process_time() - began


def _median(rounds: int, measure: Callable[[int, int], Numbers], *numbers: int) -> Numbers:
    """Of each number the middle one of some rounds, each in a process of its own."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as processes:
        taken = [processes.submit(measure, *numbers).result() for _ in range(rounds)]
    return tuple(statistics.median(each) for each in zip(*taken, strict=True))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how long many definitions take to load.")
    parser.add_argument("numbers", nargs="*", type=int, help="topics and groups, if not the usual")
    parser.add_argument("--quick", action="store_true", help="one round, and no results written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
