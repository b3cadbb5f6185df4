"""What a run takes with a Spark of its own, and with the warm server.

The demo's pipeline over 1,000 events, from the start of the run's process to the committed table,
beside a Spark job without any work.

python -m benchmarks.spark_sessions    minutes; the tables go to benchmarks/results/
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.events import new_folder, remove
from benchmarks.measuring import Comparison, Fact, Prepared, compare, machine, out, show, write
from dagster_bus import Bus, load_definitions
from dagster_bus.core.naming import job_name
from dagster_bus.orchestration.names import DELIVERY_TAG, RESERVATION_TAG
from dagster_bus.spark.server import SparkServer
from dagster_bus.spark.session import session_config
from dagster_bus.spark.warm import FOLDER, SWITCH
from dagster_bus.spec.load import load_spec
from definitions.shop import Shop

TITLE = "Spark sessions: of the run's own, and warm"
FILE = Path(__file__).parents[1] / "topics.yaml"
GROUP = "order-history"
EVENTS = 1_000
ROUNDS = 3

COLD, WARM = "0", "1"


def main() -> None:
    options = _options()
    if options.run:
        _run(json.loads(options.run))
        return
    folder = new_folder()
    os.environ.update(
        {
            "BUS_STORE": f"sqlite:///{folder}/bus.db",
            "DATA_DIR": str(folder / "data"),
            FOLDER: str(folder),
        }
    )
    server = SparkServer(FILE.parent, session_config(load_spec(FILE).spec.spark))
    try:
        server.start(say=out.print)
        rounds = 1 if options.quick else ROUNDS
        delivery = _in_turns(f"{EVENTS:,} events to a committed table", _delivery, rounds)
        empty = _in_turns("a job without any work", _nothing, rounds)
    finally:
        server.stop()
        remove(folder)
    facts = [_seconds(each, per) for each, per in ((delivery, EVENTS), (empty, 1))]
    show([delivery], facts)
    if not options.quick:
        write("spark_sessions", TITLE, machine("pyspark", "dagster"), [delivery], facts)


def _in_turns(what: str, prepare: Callable[[str], Prepared], rounds: int) -> Comparison:
    count = EVENTS if prepare is _delivery else 1
    prepare(WARM)[0]()  # the server's first one is slower; a server is kept for many
    cold, warm = partial(prepare, COLD), partial(prepare, WARM)
    return compare(what, count, "a Spark of the run's own", cold, warm, 2, rounds)


def _delivery(switch: str) -> Prepared:
    with Bus.open(FILE) as bus:
        bus.publish_many("orders.created", [each.message for each in Shop().orders(EVENTS)])
        (delivery,) = bus.group(GROUP).reserve()
    tags = {DELIVERY_TAG: delivery.id, RESERVATION_TAG: str(delivery.reservation)}
    return _process(switch, {"window": delivery.window, "tags": tags})


def _nothing(switch: str) -> Prepared:
    return _process(switch, {})


def _process(switch: str, run: dict[str, object]) -> Prepared:
    def work() -> None:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_sessions", "--run", json.dumps(run)],
            env={**os.environ, SWITCH: switch},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=300,
        )

    return work, lambda: None


def _run(run: dict[str, object]) -> None:
    """The process of a run: a delivery's, or one that only asks Spark to count to one."""
    from dagster import DagsterInstance, build_init_resource_context
    from dagster_pyspark import PySparkResource

    definitions = load_definitions(FILE)
    if not run:
        resource = (definitions.resources or {})["pyspark"]
        assert isinstance(resource, PySparkResource)
        resource.setup_for_execution(build_init_resource_context())
        resource.spark_session.range(1).count()
        resource.teardown_after_execution(build_init_resource_context())
        return
    job = definitions.resolve_job_def(job_name(GROUP))
    with DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(
            instance=instance,
            partition_key=str(run["window"]),
            tags=run["tags"],  # type: ignore[arg-type]
        )
    assert done.asset_materializations_for_node("order_history")


def _seconds(measured: Comparison, per: int) -> Fact:
    cold, warm = per / measured.beside_per_s, per / measured.bus_per_s
    return Fact(
        f"{measured.what}, with the run's process",
        f"{cold:.1f} s, and {warm:.1f} s warm: {measured.ratio:.1f} times faster",
        "≥ 2 times",
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Spark sessions.")
    parser.add_argument("--quick", action="store_true", help="one round, and no results written")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
