"""A loaded `topics.yaml` with a Dagster of its own, ticked and run by the test itself."""

from pathlib import Path
from typing import Any

import polars as pl
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    RunRequest,
    SensorResult,
    build_sensor_context,
)

from dagster_bus import Bus, BusResource, load_definitions
from dagster_bus.core.store import Tally

JOB = "order_table_job"
SENSOR = "order_table_sensor"
TABLE = AssetKey(["order_table"])
DEAD = AssetKey(["order_table", "dead_letters"])


class Project:
    """A loaded `topics.yaml` and a Dagster of its own."""

    def __init__(self, file: Path, instance: DagsterInstance) -> None:
        self.file = file
        self.instance = instance
        self.defs: Definitions = load_definitions(file)

    def publish(self, count: int, first: int = 0) -> None:
        with Bus.open(self.file) as bus:
            bus.publish_many("orders.created", [{"n": first + n} for n in range(count)])

    def tick(self, cursor: str | None = None, sensor: str = SENSOR) -> SensorResult:
        found = self.defs.resolve_sensor_def(sensor)
        context = build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources={"bus": BusResource(topics_yaml=str(self.file))},
            definitions=self.defs,
        )
        result = found(context)
        assert isinstance(result, SensorResult)
        return result

    def request(self) -> RunRequest:
        (request,) = self.tick().run_requests or []
        return request

    def run(self, request: RunRequest, job: str = JOB) -> Any:
        return self.defs.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            raise_on_error=False,
        )

    def launch(self, request: RunRequest, status: DagsterRunStatus) -> str:
        """A run that Dagster knows of and whose process never comes to work."""
        run = self.instance.create_run_for_job(
            self.defs.resolve_job_def(JOB), tags=dict(request.tags), status=status
        )
        return run.run_id

    def tally(self) -> Tally:
        with Bus.open(self.file) as bus:
            return bus.group("order-table").progress().tally

    def rows(self) -> list[int]:
        return sorted(pl.read_delta(str(self.file.parent / "data/orders"))["n"].to_list())


def failure_of(result: Any) -> str:
    """What a failed run says of itself."""
    return str(result.failure_data_for_node("order_table").user_failure_data.description)
