"""How fast groups are: draining a backlog, idle ticks, acknowledging single events, dead letters.

make bench runs this after the log. The tables go to benchmarks/results/ as Markdown and JSON.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import persistqueue

from benchmarks.embedded import closing, raw_read
from benchmarks.events import CONFIG, TOPIC, new_folder, payloads, remove
from benchmarks.measuring import (
    Comparison,
    Fact,
    Prepared,
    chunks,
    compare,
    machine,
    out,
    show,
    write,
)
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.letters import Chosen
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.opening import Bus
from dagster_bus.stores import open_store

TITLE = "Delivery: backlog, acknowledgements, dead letters"
BATCH = 10_000
PEER_EVENTS = 2_000
REPEAT = 100


def main() -> None:
    options = _options()
    many, letters = (20_000, 20_000) if options.quick else (200_000, 1_000_000)
    comparisons = [drain_comparison(many), ack_comparison(many // 4)]
    facts = [*letter_facts(10_000, letters), *latency_facts()]
    show(comparisons, facts)
    if not options.quick:
        write("delivery", TITLE, machine("persist-queue"), comparisons, facts)


def open_bus(folder: Path, *groups: GroupConfig) -> Bus:
    store = open_store(f"sqlite:///{folder}/bus.db")
    store.declare([CONFIG])
    return Bus(store, [CONFIG], groups)


def config(**changes: object) -> GroupConfig:
    return GroupConfig("readers", (TOPIC,), max_events=BATCH, **changes)  # type: ignore[arg-type]


def fill(bus: Bus, count: int) -> None:
    for chunk in chunks(payloads(count), BATCH):
        bus.publish_many(TOPIC, chunk)


def drain_comparison(count: int) -> Comparison:
    return compare(
        f"drain a backlog, batches of {BATCH:,}, settled",
        count,
        "raw SQLite, cursor",
        partial(_raw_read, count),
        partial(_drain, count),
        0.5,
        rounds=5,
    )


def _raw_read(count: int) -> Prepared:
    folder = new_folder()
    with open_bus(folder) as bus:
        fill(bus, count)
    work, close = raw_read(folder / "bus.db", count)
    return work, closing(close, folder)


def _drain(count: int) -> Prepared:
    folder = new_folder()
    bus = open_bus(folder, config())
    fill(bus, count)
    group = bus.group("readers")

    def work() -> None:
        done = 0
        while taken := group.take("bench"):
            (held,) = taken
            done += sum(1 for _ in group.events(held))
            group.settle(held)
        assert done == count

    return work, closing(bus.close, folder)


def ack_comparison(count: int) -> Comparison:
    return compare(
        "hand over and acknowledge single events",
        count,
        "persist-queue, get + task_done",
        partial(_peer_get, PEER_EVENTS, count),
        partial(_subscribe, count),
        10,
        rounds=3,
    )


def _peer_get(count: int, counted_as: int) -> Prepared:
    """So many events of the peer; its time is scaled to as many as the bus has."""
    folder = new_folder()
    queue = persistqueue.SQLiteAckQueue(str(folder), auto_commit=True)
    for payload in payloads(count):
        queue.put(payload)

    def work() -> None:
        started = time.perf_counter()
        for _ in range(count):
            queue.ack(queue.get())
        taken = time.perf_counter() - started
        time.sleep(taken * (counted_as / count - 1))

    return work, closing(queue.close, folder)


def _subscribe(count: int) -> Prepared:
    folder = new_folder()
    bus = open_bus(folder)
    fill(bus, count)
    seen = threading.Semaphore(0)
    handled = 0

    def handle(_: object) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            seen.release()

    def work() -> None:
        bus.subscribe(TOPIC, handle, group="readers", start="earliest")
        assert seen.acquire(timeout=120)
        assert bus.idle(timeout=60)

    return work, closing(bus.close, folder)


def letter_facts(small: int, large: int) -> Iterator[Fact]:
    folders = {size: new_folder() for size in (small, large)}
    once = config(retry=RetryPolicy(max_attempts=1))
    buses = {size: open_bus(folder, once) for size, folder in folders.items()}
    for size, bus in buses.items():
        out.print(f"burying {size:,} events …")
        _bury(bus, size)
    for name, chosen in (("", Chosen()), (", filtered", Chosen(topic=TOPIC))):
        costs = _costs({size: partial(_page, bus, chosen) for size, bus in buses.items()})
        yield Fact(
            f"a page of 100 of {large:,} dead letters{name}, beside {small:,}",
            f"{costs[large] * 1000:.2f} ms, {costs[large] / costs[small]:.2f} times",
            "< 10 ms, ≤ 1.2 times",
        )
    for size, bus in buses.items():
        bus.close()
        remove(folders[size])


def _page(bus: Bus, chosen: Chosen) -> None:
    assert len(bus.dead_letters("readers").list(chosen, limit=100)) == 100


def _bury(bus: Bus, count: int) -> None:
    group = bus.group("readers")
    for chunk in chunks(payloads(count), BATCH):
        bus.publish_many(TOPIC, chunk)
        (held,) = group.take("bench")
        group.fail(held, ValueError("bad"))


def _costs(steps: dict[int, Callable[[], None]]) -> dict[int, float]:
    taken: dict[int, list[float]] = {size: [] for size in steps}
    for _ in range(REPEAT):
        for size, step in steps.items():
            started = time.perf_counter()
            step()
            taken[size].append(time.perf_counter() - started)
    return {size: statistics.median(times) for size, times in taken.items()}


def latency_facts(
    rate: int = 1_000, consumers: int = 10, seconds: int = 5, rounds: int = 5
) -> Iterator[Fact]:
    """From before publishing to the handler, with the publisher at a steady rate: the middle one of
    some rounds, and what the others came to."""
    cuts = [_latency(rate, consumers, seconds) for _ in range(rounds)]
    what = f"publish to handler, {rate:,} events/s to {consumers} consumers"
    for name, place, goal in (("p50", 49, "< 5 ms"), ("p99", 98, "< 10 ms")):
        found = sorted(each[place] * 1000 for each in cuts)
        spread = f"{found[0]:.1f} to {found[-1]:.1f} ms in {rounds} runs"
        yield Fact(f"{what}, {name}", f"{statistics.median(found):.1f} ms ({spread})", goal)


def _latency(rate: int, consumers: int, seconds: int) -> list[float]:
    folder = new_folder()
    bus = open_bus(folder)
    delays: list[float] = []
    for number in range(consumers):
        bus.subscribe(
            TOPIC,
            lambda event: delays.append(time.perf_counter() - event.payload["at"]),
            group=f"readers-{number}",
            start="latest",
        )
    time.sleep(1)
    began = time.perf_counter()
    for number in range(rate * seconds):
        bus.publish(TOPIC, {"at": time.perf_counter()})
        pause = began + number / rate - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
    bus.idle(timeout=30)
    bus.close()
    remove(folder)
    assert len(delays) == rate * seconds * consumers
    return statistics.quantiles(delays, n=100)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure delivery.")
    parser.add_argument("--quick", action="store_true", help="few events, and no results written")
    parser.add_argument("--large", type=int, help="is for the log; taken and not used here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
