"""The job `replay`: events gone through again beside the live group, under a name.

What it holds is frozen when the job first runs with the name, and worked off by this run. Its rows
go to tables beside the group's, so that they can be compared, or take their place: the live tables,
cursors and dead letters stay as they are.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dagster import (
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    Output,
    in_process_executor,
    job,
    op,
)
from dagster_pyspark import PySparkResource
from pydantic import Field

from dagster_bus.core.bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.groups import Group
from dagster_bus.core.position import AtOffset, AtTime, Start
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import ReplayExists, UsageError
from dagster_bus.orchestration.names import REPLAY
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.orchestration.working import NotTried, work_off
from dagster_bus.spark.handover import OpenSession
from dagster_bus.spark.processing import Work
from dagster_bus.spark.tables import Table
from dagster_bus.spec.times import timestamp_ms

LOOK_AGAIN_S = 5.0
"""A delivery whose worker was lost may come back at any time."""


class ReplayConfig(Config):
    """What to go through again. Without offsets and times it is all that the log has."""

    group: str = Field(description="The group whose pipeline does it.")
    name: str = Field(
        description="A new name: a-z, 0-9 and '-'. With a name that was given before, that replay "
        "is gone on with, and what else is said here does not count."
    )
    from_offset: int | None = Field(None, description="The first offset, in every partition.")
    from_time: str | None = Field(
        None, description="Or the first event at this time; ISO 8601 with its zone, in quotes."
    )
    to_offset: int | None = Field(None, description="The first offset that is left out.")
    to_time: str | None = Field(None, description="Or the time from which on events are left out.")
    partitions: list[str] = Field(
        default_factory=list,
        description="Only these partitions of topics, such as orders.created/0; all without any.",
    )


def build_replay_job(works: Mapping[str, Work]) -> JobDefinition:
    @op(name=f"{REPLAY}_events", description="Freezes events under a name and works them off.")
    def replay_events(
        context: OpExecutionContext,
        config: ReplayConfig,
        bus: BusResource,
        pyspark: PySparkResource,
    ) -> Iterator[Output[None]]:
        work = works.get(config.group)
        if work is None:
            known = ", ".join(works)
            raise _failure(f"no group {config.group!r} has a pipeline (there are: {known})")
        if not work.tables:
            raise _failure(f"group {config.group} has no table beside which rows could go")
        with bus.open() as opened:
            group = _replay(context, config, opened)
            tables = tables_beside(work.tables, config.name)
            beside = replace(work, tables=tables, publish=None)
            _work_all_off(context, lambda: pyspark.spark_session, beside, group)
            yield Output(None, metadata=_account(group, beside))

    @job(
        name=REPLAY,
        description="Goes through events again beside the live group, whose tables, cursors and "
        "dead letters stay as they are. Rows go to tables beside the group's own.",
        executor_def=in_process_executor,
        config={"ops": {f"{REPLAY}_events": {"config": _example(works)}}},
        tags={"dagster/max_retries": "0"},
    )
    def replay() -> None:
        replay_events()

    return replay


def tables_beside(tables: Mapping[str, Table], name: str) -> dict[str, Table]:
    """Where the rows of a replay go: beside the folder that has the tables of all results."""
    return {result: _beside(table, result, name) for result, table in tables.items()}


def _beside(table: Table, result: str, name: str) -> Table:
    folder = table.path.rstrip("/").removesuffix(f"/{result}")
    beside = replace(table, path=f"{folder}__replay_{name}")
    return beside.named(result) if result else beside


def _example(works: Mapping[str, Work]) -> dict[str, object]:
    """What the launchpad begins with."""
    return {"group": next(iter(works), ""), "name": "again", "partitions": []}


def _replay(context: OpExecutionContext, config: ReplayConfig, bus: Bus) -> Group:
    """The replay of a name, made now unless it is there."""
    try:
        group = bus.replay(
            config.group,
            config.name,
            start=_place("from", config.from_offset, config.from_time, "earliest"),
            end=_place("to", config.to_offset, config.to_time, "latest"),
            partitions=[_partition(each) for each in config.partitions] or None,
        )
    except ReplayExists:
        group = bus.replays(config.group)[config.name]
        context.log.info("Replay %s is there already, and is gone on with.", group.config.name)
    except (UsageError, ValueError) as error:
        raise _failure(str(error)) from error
    context.log.info("%s holds %s events.", group.config.name, group.progress().published)
    return group


def _place(end: str, offset: int | None, moment: str | None, default: Start) -> Start:
    if offset is not None and moment is not None:
        raise UsageError(f"give one of {end}_offset and {end}_time, and not both")
    if offset is not None:
        return AtOffset(offset)
    return default if moment is None else AtTime(timestamp_ms(moment))


def _partition(text: str) -> TopicPartition:
    topic, slash, number = text.rpartition("/")
    if not (slash and topic and number.isdigit()):
        raise UsageError(f"{text!r} is no partition of a topic (such as orders.created/0)")
    return TopicPartition(topic, int(number))


def _work_all_off(
    context: OpExecutionContext, open_session: OpenSession, work: Work, group: Group
) -> None:
    """Work off one delivery after the other, until none is left. One that fails waits for its next
    attempt by the group's retry policy, and ends in the dead letters of the replay. Without Spark
    the job ends: launched again under the same name, it goes on."""
    while open_ := group.open_deliveries():
        for held in group.take(context.run.run_id):
            context.log.info("Window %s: %s events.", held.window, held.size)
            try:
                work_off(open_session, work, group, held)
            except NotTried:
                raise
            except Failure as failure:
                context.log.warning("%s", failure.description)
            break
        else:
            _wait(group, open_)


def _wait(group: Group, open_: list[Delivery]) -> None:
    if group.progress().blocked:
        raise _failure(
            f"{group.config.name} has stopped, as events failed for good. Mend the cause, let it "
            f"go on with: dagster-bus resume {group.config.name}, and launch this job again"
        )
    due_s = (min(each.due_ms for each in open_) - system_clock()) / 1000
    time.sleep(min(max(due_s, 0.05), LOOK_AGAIN_S))


def _account(group: Group, work: Work) -> dict[str, MetadataValue]:
    tally = group.progress().tally
    return {
        "replay": MetadataValue.text(group.config.name),
        "events": MetadataValue.int(tally.settled),
        "processed": MetadataValue.int(tally.processed),
        "filtered": MetadataValue.int(tally.filtered),
        "dead letters": MetadataValue.int(tally.dead_lettered),
        **{
            f"table {name}".strip(): MetadataValue.path(table.path)
            for name, table in work.tables.items()
        },
    }


def _failure(message: str) -> Failure:
    return Failure(f"Nothing was replayed: {message}", allow_retries=False)
