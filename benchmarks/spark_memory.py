"""How much memory a driver takes over a large window.

python -m benchmarks.spark_memory STORE COUNT TABLE    one window; prints what it took

The peak of what was resident is measured, of the driver's JVM (which in a local session does the
executors' work too) and of the Python process that drives it. The processes that read the store are
not the driver: they end with it, and hold one batch each.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.events import TOPIC
from benchmarks.measuring import Fact
from benchmarks.spark_files import COLUMNS
from benchmarks.spark_runs import WINDOW, open_session
from dagster_bus.core.topic import OffsetRange
from dagster_bus.spark.handover import Selection, handed_over
from dagster_bus.spark.tables import Table, replace_window

GOAL_BYTES = 1_500_000_000
PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


def window_memory(url: str, count: int, table: Path) -> Fact:
    """Bring a log of so many events into one window of a table, by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark_memory", url, str(count), str(table)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    peaks: dict[str, int] = json.loads(done.stdout)
    told = " and ".join(f"{size / 1e6:,.0f} MB {name}" for name, size in peaks.items())
    return Fact(
        f"{count:,} events in one window, the driver's peak of resident memory",
        f"{sum(peaks.values()) / 1e6:,.0f} MB ({told})",
        f"< {GOAL_BYTES / 1e6:,.0f} MB",
    )


def main(url: str, count: int, table: str) -> None:
    spark = open_session()
    asked = Selection(url, [OffsetRange(TOPIC, 0, 1, count)], columns=COLUMNS)
    with handed_over(lambda: spark, asked) as events:
        rows = events.frame.select(*COLUMNS, "_event.id", "_event.ts")
        written = replace_window(Table(table), WINDOW, rows, name="bench")
    assert written is not None
    assert written.rows == count
    peaks = {"JVM": _peak(_java()), "Python": _peak(os.getpid())}
    print(json.dumps(peaks))
    spark.stop()


def _java() -> int:
    """The JVM that this process has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue  # it has just ended
        if name == "java" and int(fields[1]) == os.getpid():
            return int(folder.name)
    raise RuntimeError("no JVM was started by this process")


def _peak(pid: int) -> int:
    found = PEAK.search(Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
