"""Places where the tests may have something go wrong. They wish for it with a file; the first who
comes by takes the wish."""

import time
from pathlib import Path

from dagster import (
    DagsterRun,
    DefaultRunLauncher,
    QueuedRunCoordinator,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
)
from dagster._core.launcher import LaunchRunContext
from dagster._core.run_coordinator import SubmitRunContext

PATIENCE_S = 300.0


def is_wished(mishap: str) -> bool:
    """Whether it is to happen to this one."""
    try:
        Path(f"wish-{mishap}").rename(f"has-{mishap}")
    except FileNotFoundError:
        return False
    return True


def stop_here(place: str) -> None:
    """Wait until it may go on, if that is wished."""
    if not is_wished(place):
        return
    deadline = time.monotonic() + PATIENCE_S
    while not Path(f"go-on-{place}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def fragile(sensor: SensorDefinition) -> SensorDefinition:
    """The same sensor, whose tick may stop when it has reserved."""
    group = sensor.name.removesuffix("_sensor")

    def tick(context: SensorEvaluationContext) -> object:
        found = sensor(context)
        if isinstance(found, SensorResult) and found.run_requests:
            stop_here(f"tick-of-{group}")
        return found

    return SensorDefinition(
        name=sensor.name,
        evaluation_fn=tick,  # type: ignore[arg-type]
        job_name=sensor.job_name if sensor.targets else None,
        minimum_interval_seconds=sensor.minimum_interval_seconds,
        default_status=sensor.default_status,
        required_resource_keys=set(sensor.required_resource_keys),
    )


def group_of(run: DagsterRun) -> str:
    return run.tags.get("dagster_bus/group", "nobody")


class Queue(QueuedRunCoordinator):
    """A queue that a run may be stopped before."""

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        stop_here(f"submission-of-{group_of(context.dagster_run)}")
        return super().submit_run(context)


class Launcher(DefaultRunLauncher):
    """A launcher that may refuse runs, and lose some."""

    def launch_run(self, context: LaunchRunContext) -> None:
        group = group_of(context.dagster_run)
        if is_wished(f"refusal-of-{group}"):
            raise RuntimeError("no machine is free")
        if not is_wished(f"loss-of-{group}"):
            super().launch_run(context)
