"""The demo: the shop, the bus, Dagster and Spark together, on this machine.

python -m definitions.demo           until Ctrl-C, with the UI to look around in
python -m definitions.demo --once    a bounded set of events, and their account at the end

With --store mongo the log is on MongoDB: on the server of MONGO_URL, or one started for the demo.
A Spark server is kept warm for the runs meanwhile, unless DAGSTER_BUS_WARM_SPARK=0.
"""

import argparse
import logging
import os
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from rich.console import Console

from dagster_bus import Bus, BusError, Message
from dagster_bus.core.store import GroupProgress
from dagster_bus.orchestration.dev import DagsterDev
from dagster_bus.spark.server import SparkServer
from dagster_bus.spark.warm import FOLDER
from dagster_bus.spec.load import load_spec
from definitions.accounts import FATES, accounts, close, expected
from definitions.guide import Watcher, where_to_look
from definitions.shop import Happening, Kind, Shop
from definitions.stage import LOCK, PROJECT, TOPICS, alone_in, dagster_in, store_in, warm_spark

ONCE_TIMEOUT_S = 180
SPARK_TIMEOUT_S = 60.0
BEAT_S = 2.0

SEED = 7
DAY = timedelta(hours=4)
DAY_BEATS = 40
ORDERS_A_BEAT = 50

out = Console(highlight=False, soft_wrap=True)


def main() -> int:
    options = _options()
    home = options.home.resolve() / f"{options.store}-{'once' if options.once else 'stay'}"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    logging.getLogger("dagster_bus").setLevel(logging.ERROR)  # garbled events are no news here
    os.environ["DATA_DIR"] = str(home / "data")
    os.environ[FOLDER] = str(home / "spark")
    try:
        with alone_in(home):
            return _run(home, options)
    except KeyboardInterrupt:
        out.print("\nStopped. Dagster and everything it started have ended.")
        return 0
    except BusError as error:
        out.print(f"[red]{error}[/red]")
        return 1


def _run(home: Path, options: argparse.Namespace) -> int:
    deadline = time.monotonic() + options.within
    if options.once:
        SparkServer(PROJECT, {}).stop()  # if a demo before this one was killed
        for made in set(home.iterdir()) - {home / LOCK}:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    elif (home / "data").exists():
        out.print(f"Going on where the last demo stopped; delete {home} to begin anew.")
    with store_in(home, options.store, out, once=options.once) as url:
        os.environ["BUS_STORE"] = url
        out.print("Starting Dagster and Spark; this takes some seconds …")
        dagster = dagster_in(home, options.port)
        with warm_spark(out) as wait_for_spark, dagster, Bus.open(TOPICS) as bus:
            wait_for_spark(SPARK_TIMEOUT_S)
            if options.once:
                return _once(bus, dagster, deadline)
            _stay(bus, dagster)
    return 0


def _stay(bus: Bus, dagster: DagsterDev) -> None:
    """Publish until interrupted, with a little poison now and then."""
    out.print(where_to_look(dagster))
    shop = Shop(beat=timedelta(seconds=BEAT_S))
    watcher = Watcher(bus, FATES, out)
    for beat in count(1):
        publish(bus, shop.pass_time(8))
        if beat == 3:
            _publish_a_misprint(bus, shop)
        if beat % 60 == 5:
            publish(bus, shop.poison(3))
            out.print("[red]published 3 orders without a rate; they hold up their batch[/red]")
        if beat % 5 == 0:
            watcher.look()
            watcher.point_to_letters()
        time.sleep(BEAT_S)


def _once(bus: Bus, dagster: DagsterDev, deadline: float) -> int:
    """Publish a bounded set, wait until all of it is settled, and check the account."""
    started = time.monotonic()
    watcher = Watcher(bus, FATES, out)
    shop = Shop(SEED, datetime.now(UTC) - DAY, DAY / DAY_BEATS)
    out.print(f"Dagster is at {dagster.url} for as long as this takes.")
    day = [each for _ in range(DAY_BEATS) for each in shop.pass_time(ORDERS_A_BEAT)]
    kinds = publish(bus, day + shop.close())
    out.print("Published a day of the shop:")
    for kind, number in kinds.most_common():
        out.print(f"  {number:>5,}  {kind}")
    _publish_a_misprint(bus, shop)
    while not _is_taken_up(watcher.look()["order-history"]):
        _wait(deadline, dagster)
    out.print("Runs have been requested. Publishing 20 more orders, with 3 that no attempt can")
    out.print("price; there are two attempts, and then one more run that finds what fails alone.")
    kinds += publish(bus, shop.orders(20) + shop.poison(3))
    due = {group: tally.settled for group, tally in expected(kinds).items()}
    while any(found.tally.settled < due[name] for name, found in watcher.look().items()):
        _wait(deadline, dagster)
    out.print(f"All settled after {time.monotonic() - started:.0f} s.")
    return close(accounts(bus, load_spec(TOPICS), kinds), out)


def _is_taken_up(progress: GroupProgress) -> bool:
    inside = progress.reserved + progress.running + progress.waiting
    return inside + progress.tally.settled > 0


def publish(bus: Bus, happened: Iterable[Happening]) -> Counter[Kind]:
    """Publish what happened, topic by topic; how much of each kind that was."""
    by_topic: defaultdict[str, list[Message]] = defaultdict(list)
    kinds = Counter[Kind]()
    for kind, topic, message in happened:
        by_topic[topic].append(message)
        kinds[kind] += 1
    for topic, messages in by_topic.items():
        bus.publish_many(topic, messages)
    return kinds


def _publish_a_misprint(bus: Bus, shop: Shop) -> None:
    try:
        bus.publish("orders.created", shop.misprint())
    except BusError as error:
        out.print(f"One more order was refused as it was published: {error}")


def _wait(deadline: float, dagster: DagsterDev) -> None:
    if time.monotonic() > deadline:
        raise BusError(
            "this takes too long: the line before says how far each group is, and the runs in "
            f"{dagster.log} why; --within 600 gives it ten minutes"
        )
    time.sleep(0.5)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The demo of dagster-bus.")
    parser.add_argument("--once", action="store_true", help="stop when every event is settled")
    parser.add_argument("--store", choices=["sqlite", "mongo"], default="sqlite")
    parser.add_argument("--port", type=int, help="the UI's port (3000, or any that is free)")
    parser.add_argument(
        "--home", type=Path, default=PROJECT / ".demo", help="where to keep all that is made"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=ONCE_TIMEOUT_S,
        metavar="SECONDS",
        help="how long --once may take (%(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
