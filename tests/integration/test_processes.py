"""Many processes on one store, some of them killed: what was acknowledged is there, once."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from dagster_bus import Bus
from tests.support.project import write_topics

PROJECT = Path(__file__).parents[2]
PUBLISHERS = 50
BATCHES = 4
PER_BATCH = 20

PUBLISHER = """
import sys
from dagster_bus import Bus
file, name, batches, per_batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Bus.open(file) as bus:
    for batch in range(batches):
        events = [{"n": batch * per_batch + n, "by": name} for n in range(per_batch)]
        for at in bus.publish_many("orders.created", events):
            print(at.partition, at.offset, at.id, flush=True)
"""


def publisher(file: Path, name: str, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(file), name, str(batches), str(PER_BATCH)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def file(tmp_path: Path, store_url: str) -> Path:
    return write_topics(tmp_path, **{"sqlite:///bus.db": store_url})


def log(bus: Bus) -> Iterator[tuple[int, int, str, dict[str, object]]]:
    for partition in (0, 1):
        for event in bus.read("orders.created", partition):
            yield partition, event.offset, event.id, event.payload


def test_processes_that_publish_at_once_lose_nothing_and_leave_no_gap(file: Path) -> None:
    """They all open a store that does not exist yet."""
    processes = [publisher(file, f"p{n}", BATCHES) for n in range(PUBLISHERS)]
    acknowledged = [line for each in processes for line in each.communicate()[0].splitlines()]
    assert [each.returncode for each in processes] == [0] * PUBLISHERS
    with Bus.open(file) as bus:
        entries = list(log(bus))
        times = [[e.ts for e in bus.read("orders.created", partition)] for partition in (0, 1)]
    assert len(entries) == PUBLISHERS * BATCHES * PER_BATCH == len(acknowledged)
    assert {f"{p} {o} {i}" for p, o, i, _ in entries} == set(acknowledged)
    for partition in (0, 1):
        offsets = [offset for at, offset, _, _ in entries if at == partition]
        assert offsets == list(range(1, len(offsets) + 1))
        orders: dict[object, list[int]] = {}
        for at, _, _, payload in entries:
            if at == partition:
                orders.setdefault(payload["by"], []).append(int(str(payload["n"])))
        assert all(earlier < later for own in orders.values() for earlier, later in pairwise(own))
    assert all(earlier <= later for own in times for earlier, later in pairwise(own))


def test_a_killed_publisher_has_published_what_was_acknowledged_and_whole_batches(
    file: Path,
) -> None:
    for round_ in range(5):
        process = publisher(file, f"round-{round_}", 100_000)
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(1 + round_ * 37)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        with Bus.open(file) as bus:
            entries = list(log(bus))
        whole_lines = {line.strip() for line in acknowledged if line.endswith("\n")}
        assert whole_lines <= {f"{p} {o} {i}" for p, o, i, _ in entries}
        by = Counter(payload["by"] for _, _, _, payload in entries)
        assert by[f"round-{round_}"] % PER_BATCH == 0, "a batch is there as a whole or not at all"
        for partition in (0, 1):
            offsets = [offset for at, offset, _, _ in entries if at == partition]
            assert offsets == list(range(1, len(offsets) + 1))
