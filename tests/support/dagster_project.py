"""A loaded `topics.yaml` with a Dagster of its own, ticked and run by the test itself."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dagster import (
    AssetKey,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    RunRequest,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    build_sensor_context,
)

from dagster_bus import Bus, BusResource, load_definitions
from dagster_bus.core.store import Tally
from dagster_bus.orchestration import sessions

JOB = "order_table_job"
SENSOR = "order_table_sensor"
TABLE = AssetKey(["order_table"])
DEAD = AssetKey(["order_table", "dead_letters"])


class Project:
    """A loaded `topics.yaml`, with definitions of the user's own if there are any, and a Dagster of
    its own."""

    def __init__(self, file: Path, instance: DagsterInstance, *own: Definitions) -> None:
        self.file = file
        self.instance = instance
        self.defs: Definitions = Definitions.merge(load_definitions(file), *own)

    def publish(self, count: int, first: int = 0) -> None:
        with Bus.open(self.file) as bus:
            bus.publish_many("orders.created", [{"n": first + n} for n in range(count)])

    def tick(
        self, cursor: str | None = None, sensor: str = SENSOR, *, by_daemon: bool = False
    ) -> SensorResult:
        """One tick; unless it is the daemon's, as of a preview in the UI."""
        context = self.context(cursor, by_daemon=by_daemon)
        result = self.defs.resolve_sensor_def(sensor)(context)
        assert isinstance(result, SensorResult)
        return result

    def skipped(self, sensor: str = SENSOR) -> str:
        """What a tick says that could not do anything."""
        result = self.defs.resolve_sensor_def(sensor)(self.context())
        assert isinstance(result, SkipReason)
        return str(result.skip_message)

    def context(
        self, cursor: str | None = None, *, by_daemon: bool = False
    ) -> SensorEvaluationContext:
        return build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources={"bus": BusResource(topics_yaml=str(self.file))},
            definitions=self.defs,
            last_sensor_start_time=time.time() if by_daemon else None,
        )

    def request(self, sensor: str = SENSOR) -> RunRequest:
        (request,) = self.tick(sensor=sensor).run_requests or []
        return request

    def run(self, request: RunRequest) -> Any:
        return self.defs.resolve_job_def(request.job_name or JOB).execute_in_process(
            instance=self.instance,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            raise_on_error=False,
        )

    def launch(self, request: RunRequest, status: DagsterRunStatus) -> str:
        """A run that Dagster knows of and whose process never comes to work."""
        run = self.instance.create_run_for_job(
            self.defs.resolve_job_def(request.job_name or JOB),
            tags=dict(request.tags),
            status=status,
        )
        return run.run_id

    def end(self, run_id: str, how: DagsterEventType) -> None:
        """Have Dagster know that a run has begun, or ended."""
        event = DagsterEvent(event_type_value=how.value, job_name="any")
        self.instance.report_dagster_event(event, run_id=run_id)

    def tally(self, group: str = "order-table") -> Tally:
        with Bus.open(self.file) as bus:
            return bus.group(group).progress().tally

    def rows(self) -> list[int]:
        return sorted(pl.read_delta(str(self.file.parent / "data/orders"))["n"].to_list())


@contextmanager
def without_java(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Spark session can be opened."""

    def no_java(_config: object) -> None:
        raise RuntimeError("Java gateway process exited before sending its port number")

    with monkeypatch.context() as patched:
        patched.setattr(sessions, "spark_session_from_config", no_java)
        yield


def failure_of(result: Any) -> str:
    """What a failed run says of itself."""
    return str(result.failure_data_for_node("order_table").user_failure_data.description)
