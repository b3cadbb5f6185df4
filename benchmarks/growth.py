"""Whether the log slows down as it grows, and how much memory publishing a long stream takes.

A process of its own publishes the stream, so that its memory is its own.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.events import CONFIG, NOTE, TOPIC, new_folder, open_bus, payloads, remove
from benchmarks.measuring import Fact
from dagster_bus.core.bus import Bus
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.stores import open_store

SMALL = 10_000
PUBLISHER = """
import resource, sys
from benchmarks.events import TOPIC, open_bus, stream
with open_bus(sys.argv[1]) as bus:
    for published in bus.publish_stream(TOPIC, stream(int(sys.argv[2]))):
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
REPEAT = 200


def facts(large: int) -> Iterator[Fact]:
    """The costs at two sizes of the log, measured in turns."""
    folder = new_folder()
    urls = {size: f"sqlite:///{folder}/{size}.db" for size in (SMALL, large)}
    try:
        _publish(urls[SMALL], SMALL)
        memory_mb = _publish(urls[large], large)
        yield Fact(
            f"memory to publish {large:,} events from a stream", f"{memory_mb} MB", "< 150 MB"
        )
        for name, prepare in STEPS.items():
            costs = _costs(prepare, urls)
            ratio = costs[large] / costs[SMALL]
            yield Fact(
                f"{name} at {large:,} events, beside {SMALL:,}",
                f"{costs[large] * 1e6:,.0f} µs, {ratio:.2f} times",
                "≤ 1.2 times",
            )
    finally:
        remove(folder)


def _publish(url: str, count: int) -> int:
    """Publish so many events in a process of its own; returns the memory it took, in MB."""
    said = subprocess.run(
        [sys.executable, "-c", PUBLISHER, url, str(count)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(said.stdout)


def _costs(prepare: "Prepare", urls: dict[int, str]) -> dict[int, float]:
    steps = {size: prepare(url, size) for size, url in urls.items()}
    taken: dict[int, list[float]] = {size: [] for size in urls}
    for _ in range(REPEAT):
        for size, (step, _) in steps.items():
            started = time.perf_counter()
            step()
            taken[size].append(time.perf_counter() - started)
    for _, close in steps.values():
        close()
    return {size: statistics.median(times) for size, times in taken.items()}


Prepare = Callable[[str, int], tuple[Callable[[], object], Callable[[], None]]]


def _append(url: str, _: int) -> tuple[Callable[[], object], Callable[[], None]]:
    bus = open_bus(url)
    batch = payloads(1_000)
    return lambda: bus.publish_many(TOPIC, batch), bus.close


def _append_one(url: str, _: int) -> tuple[Callable[[], object], Callable[[], None]]:
    bus = open_bus(url)
    return lambda: bus.publish(TOPIC, {"note": NOTE}), bus.close


def _read_by_offset(url: str, size: int) -> tuple[Callable[[], object], Callable[[], None]]:
    store = open_store(url)
    middle = size // 2
    span = OffsetRange(TOPIC, 0, middle, middle + 999)
    return lambda: store.read(span, 1_000), store.close


def _find_by_time(url: str, size: int) -> tuple[Callable[[], object], Callable[[], None]]:
    store = open_store(url)
    at = TopicPartition(TOPIC, 0)
    (event,) = store.read(OffsetRange(TOPIC, 0, size // 2, size // 2), 1)

    def step() -> object:
        first = store.offsets_at([at], event.ts)[at]
        return store.read(OffsetRange(TOPIC, 0, first, first + 999), 1_000)

    return step, store.close


def _idle_tick(url: str, _: int) -> tuple[Callable[[], object], Callable[[], None]]:
    """Of one among a hundred groups, all of which have nothing to do."""
    store = open_store(url)
    configs = [GroupConfig(f"group-{number}", (TOPIC,)) for number in range(100)]
    bus = Bus(store, [CONFIG], configs)
    for config in configs:
        bus.group(config.name).seek("latest")
    group = bus.group("group-50")
    return group.reserve, bus.close


STEPS: dict[str, Prepare] = {
    "a tick with nothing new, of one among 100 groups,": _idle_tick,
    "append of 1,000": _append,
    "append of one": _append_one,
    "read of 1,000 by offset": _read_by_offset,
    "read of 1,000 by time": _find_by_time,
}
