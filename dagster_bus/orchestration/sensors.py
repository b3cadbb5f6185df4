"""The sensors of groups: they reserve what may run now and ask Dagster for the runs.

A tick may be lost at any moment, or be run by a preview in the UI: a reservation whose run never
comes expires and is made again, so no event depends on Dagster's memory. A sensor's cursor only
holds the number of dead letters last shown, and where one that serves many groups goes on.
"""

from collections.abc import Sequence
from typing import Any

from dagster import (
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from dagster_bus.core.naming import sensor_name
from dagster_bus.errors import BusError
from dagster_bus.orchestration.dead_letters import dead_letters_now
from dagster_bus.orchestration.job_groups import Started
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.orchestration.rounds import Round, look_after
from dagster_bus.orchestration.served import Served
from dagster_bus.orchestration.turns import Turn, Turns
from dagster_bus.orchestration.waiting import BUSY_S, IDLE_S, first_news

TICK_SECONDS = 1
"""Every round of the daemon, which comes by each 5 s; a longer interval would miss every other
one."""


SHARED = "bus_groups"
"""The sensor of all groups. A group's own ends in `_sensor`, so none has this name."""


def build_sensors(started: Started, mode: str) -> list[SensorDefinition]:
    """A sensor for each group; or one for all that it can serve, if it is to be shared."""
    if mode != "shared":
        return [build_sensor(each) for each in started.groups]
    shared = [each for each in started.groups if each.group in started.jobs]
    own = [each for each in started.groups if each.group not in started.jobs]
    sensors = [build_sensor(each) for each in own]
    if shared:
        sensors.append(build_shared_sensor(shared, [*started.jobs.values()]))
    return sensors


def build_sensor(served: Served) -> SensorDefinition:
    """A sensor for one group."""
    name = served.group

    @sensor(
        name=sensor_name(name),
        job_name=served.job,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Starts runs for new events of group {name}. Stop it to pause the group.",
    )
    def tick(context: SensorEvaluationContext, bus: BusResource) -> SensorResult | SkipReason:
        shown = int(context.cursor or 0)

        def patience_s(found: Round) -> float:
            if found.requests or found.progress.tally.dead_lettered != shown:
                return 0
            return BUSY_S if found.progress.lag else IDLE_S

        try:
            with bus.open() as opened:
                found = first_news(
                    context,
                    opened.group(name).listen,
                    lambda: look_after(context, opened, served),
                    patience_s,
                )
                dead = found.progress.tally.dead_lettered
                return SensorResult(
                    run_requests=found.requests,
                    skip_reason=SkipReason(found.idle) if found.idle else None,
                    cursor=str(dead),
                    asset_events=[dead_letters_now(opened, name)] if dead != shown else [],
                )
        except BusError as error:
            return SkipReason(in_trouble(error))

    return tick


def build_shared_sensor(served: Sequence[Served], jobs: Sequence[Any]) -> SensorDefinition:
    """One sensor for many groups, which it goes over in turn. Their jobs must be at hand: Dagster
    has no sensor that starts several by name."""

    @sensor(
        name=SHARED,
        jobs=jobs,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Starts runs for new events of {len(served)} groups. Stop it to pause them.",
    )
    def tick(context: SensorEvaluationContext, bus: BusResource) -> SensorResult | SkipReason:
        def patience_s(turn: Turn) -> float:
            if turn.requests or turn.letters or turn.trouble or not turn.is_whole:
                return 0
            return BUSY_S if turn.lag else IDLE_S

        try:
            with bus.open() as opened:
                turns = Turns(context, opened, served)
                listen = opened.group(served[0].group).listen
                turn = first_news(context, listen, turns.next, patience_s)
                return SensorResult(
                    run_requests=turn.requests,
                    skip_reason=None if turn.requests else SkipReason(turn.idle),
                    cursor=turn.cursor,
                    asset_events=[dead_letters_now(opened, name) for name in turn.letters],
                )
        except BusError as error:
            return SkipReason(in_trouble(error))

    return tick


def in_trouble(error: BusError) -> str:
    return f"{error} — no event is lost by this, and the next tick tries again."
