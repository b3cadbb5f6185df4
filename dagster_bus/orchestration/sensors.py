"""A group's sensor: it reserves what may run now and asks Dagster for the runs.

A tick may be lost at any moment, or be run by a preview in the UI: a reservation whose run never
comes expires and is made again, so no event depends on Dagster's memory. The sensor's cursor only
holds the number of dead letters last shown.
"""

from datetime import UTC, datetime

from dagster import (
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from dagster_bus.core.breaker import Circuit
from dagster_bus.core.groups import Group
from dagster_bus.core.naming import job_name, sensor_name
from dagster_bus.core.store import GroupProgress
from dagster_bus.orchestration.dead_letters import dead_letters_now
from dagster_bus.orchestration.requests import run_request
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.orchestration.runs import look_at_runs

TICK_SECONDS = 1
"""Every round of the daemon, which comes by each 5 s; a longer interval would miss every other
one."""


def build_sensor(name: str) -> SensorDefinition:
    @sensor(
        name=sensor_name(name),
        job_name=job_name(name),
        minimum_interval_seconds=TICK_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Starts runs for new events of group {name}. Stop it to pause the group.",
    )
    def tick(context: SensorEvaluationContext, bus: BusResource) -> SensorResult:
        with bus.open() as opened:
            group = opened.group(name)
            look = look_at_runs(context.instance, group.config.launch_timeout_ms)
            reserved = group.reserve(look)
            progress = group.progress()
            dead = str(progress.tally.dead_lettered)
            changed = dead != (context.cursor or "0")
            return SensorResult(
                run_requests=[run_request(delivery, group.config.windows) for delivery in reserved],
                skip_reason=None if reserved else SkipReason(_idle(group, progress)),
                cursor=dead,
                asset_events=[dead_letters_now(opened, name)] if changed else [],
            )

    return tick


def _idle(group: Group, progress: GroupProgress) -> str:
    """Why there is nothing to start."""
    name = group.config.name
    if progress.blocked:
        return (
            f"The group has stopped: {progress.blocked} events failed for good, and it is to block "
            f"then. Mend the cause, and let it go on: dagster-bus resume {name}"
        )
    circuit, breaker = group.circuit()
    if circuit is Circuit.OPEN:
        until = datetime.fromtimestamp(breaker.paused_until_ms / 1000, UTC)
        return f"The group pauses until {until:%H:%M:%S} UTC: its work failed again and again."
    if progress.lag == 0:
        return f"Nothing new: all {progress.published} events are settled."
    return (
        f"{progress.lag} events to go: {progress.reserved} reserved for runs that are starting, "
        f"{progress.running} in running ones, {progress.waiting} waiting for their next attempt."
    )
