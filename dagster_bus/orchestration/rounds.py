"""One round of looking after a group: what came of its runs, and which are to be started now."""

from dataclasses import dataclass
from datetime import UTC, datetime

from dagster import PartitionsDefinition, RunRequest, SensorEvaluationContext

from dagster_bus.core.breaker import Circuit
from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.groups import Group
from dagster_bus.core.store import GroupProgress
from dagster_bus.orchestration.reconciling import look_at_outcomes, reconcile
from dagster_bus.orchestration.requests import (
    partition_at,
    require_usable,
    run_request,
    window_shown,
)
from dagster_bus.orchestration.runs import RunBook, look_at_runs
from dagster_bus.orchestration.served import Served

MOST_RUNS = 50
"""Runs that one tick asks for. Dagster starts them one after the other, and the next tick comes
when all are started."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one look at a group came to."""

    requests: list[RunRequest]
    progress: GroupProgress
    idle: str
    """Why there was nothing to start, if so."""


def look_after(
    context: SensorEvaluationContext, bus: Bus, served: Served, most: int = MOST_RUNS
) -> Round:
    """Take up what became of a group's runs, and reserve what may run now."""
    group = bus.group(served.group)
    partitions = _partitions(context, served)
    book = RunBook(context.instance, group)
    patience_ms = group.config.launch_timeout_ms
    if served.settles_itself:
        look = look_at_runs(book, patience_ms)
    else:
        reconcile(context.instance, group, book)
        look = look_at_outcomes(RunBook(context.instance, group), patience_ms)
    reserved = group.reserve(look, most)
    requests = [
        run_request(
            served,
            delivery,
            group.most_urgent(delivery),
            _partition_key(group, served, delivery, partitions),
        )
        for delivery in reserved
    ]
    progress = group.progress()
    return Round(requests, progress, "" if requests else idle(group, progress))


def idle(group: Group, progress: GroupProgress) -> str:
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


def _partitions(context: SensorEvaluationContext, served: Served) -> PartitionsDefinition | None:
    """How an existing job is partitioned. That it is there, Dagster has seen to when it loaded the
    definitions."""
    if served.settles_itself or context.repository_def is None:
        return None
    partitions = context.repository_def.get_job(served.job).partitions_def
    require_usable(partitions, served.job)
    return partitions


def _partition_key(
    group: Group, served: Served, delivery: Delivery, partitions: PartitionsDefinition | None
) -> str | None:
    if served.settles_itself:
        return window_shown(delivery, group.config.windows)
    if partitions is None:
        return None
    return partition_at(partitions, _first_time(group, delivery), served.job)


def _first_time(group: Group, delivery: Delivery) -> datetime:
    """When the first of a delivery's events was published. All of them are of one window."""
    first = next(group.events(delivery), None)
    return datetime.fromtimestamp((first.ts if first else delivery.created_ms) / 1000, UTC)
