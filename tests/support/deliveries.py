"""Deliveries through whatever Spark session a project gives its runs, in a process of their own: a
process has either a Spark of its own or a connection to a server, never both.

python -m tests.support.deliveries TOPICS.YAML COUNT [COUNT | back …]
    each count is published and worked off by a run; one line of JSON for each
    `back` sends the dead letters back, with a payload that is 1
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from dagster import DagsterInstance

from dagster_bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.spec.load import load_spec
from tests.support.dagster_project import Project
from tests.support.pipelines import sessions


def main(file: Path, words: list[str]) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        DagsterInstance.local_temp(home) as instance,
    ):
        project = Project(file, instance)
        for word in words:
            if word == "back":
                _send_back(project)
            else:
                project.publish(int(word))
            print(json.dumps(_deliver(project)), flush=True)


def _send_back(project: Project) -> None:
    with Bus.open(project.file) as bus:
        patch = [{"op": "replace", "path": "/n", "value": 1}]
        list(bus.dead_letters("order-table").redrive(patch=patch))


def _deliver(project: Project) -> dict[str, object]:
    request = project.request()
    began, at = time.monotonic(), system_clock()
    result = project.run(request)
    logs = project.instance.all_logs(result.run_id)
    return {
        "success": result.success,
        "seconds": time.monotonic() - began,
        "at": at,
        "session": sessions[-1] if sessions else None,
        "rows": _rows(project),
        "said": [log.user_message for log in logs if "Spark:" in log.user_message],
        "processed": project.tally().processed,
    }


def _rows(project: Project) -> list[int]:
    table = load_spec(project.file).table_path("order-table")
    return sorted(pl.read_delta(table)["n"].to_list())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
