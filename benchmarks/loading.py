"""How long a code location takes to load: `python -m benchmarks.loading [TOPICS] [GROUPS]`.

Prints CPU seconds, of this process alone: a machine that is busy with other things counts less."""

import sys
import tempfile
import time
from pathlib import Path

from dagster_bus import load_definitions


def project(folder: Path, topics: int, groups: int) -> Path:
    """A file with so many topics and groups, each of which reads one topic."""
    lines = ["version: 1", "store: sqlite:///nowhere/bus.db", "topics:"]
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


def main(topics: int = 1_000, groups: int = 2_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = project(Path(folder), topics, groups)
        began = time.process_time()
        defs = load_definitions(file)
        loaded = time.process_time()
        defs.get_repository_def().load_all_definitions()
        done = time.process_time()
    print(
        f"{topics:,} topics, {groups:,} groups: load_definitions {loaded - began:.2f} s, "
        f"Dagster's own checks {done - loaded:.2f} s (CPU time)"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
