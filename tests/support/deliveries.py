"""Deliveries through whatever Spark session a project gives its runs, in a process of their own: a
process has either a Spark of its own or a connection to a server, never both.

python -m tests.support.deliveries TOPICS.YAML COUNT [COUNT …]
    each count is published and worked off by a run; one line of JSON for each
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from dagster import DagsterInstance

from dagster_bus.core.clock import system_clock
from dagster_bus.spec.load import load_spec
from tests.support.dagster_project import Project
from tests.support.pipelines import sessions


def main(file: Path, counts: list[int]) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        DagsterInstance.local_temp(home) as instance,
    ):
        project = Project(file, instance)
        for count in counts:
            print(json.dumps(_deliver(project, count)), flush=True)


def _deliver(project: Project, count: int) -> dict[str, object]:
    project.publish(count)
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
    main(Path(sys.argv[1]), [int(count) for count in sys.argv[2:]])
