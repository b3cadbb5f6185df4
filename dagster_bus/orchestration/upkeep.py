"""Looking after the log and the tables: jobs, and schedules that start them.

Retention and compaction are asked for in topics.yaml, so their schedule runs if they are. Tables
are looked after once somebody has turned that on: files are removed that readers of old versions
might want.
"""

from collections.abc import Sequence

from dagster import (
    Config,
    DefaultScheduleStatus,
    Failure,
    GraphDefinition,
    JobDefinition,
    OpDefinition,
    OpExecutionContext,
    ScheduleDefinition,
    in_process_executor,
    op,
)
from pydantic import Field

from dagster_bus.errors import BusError
from dagster_bus.opening import Bus
from dagster_bus.orchestration.names import MAINTAIN, PRUNE
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.spark.tables import declared_table, maintain, tables_at
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.spec.units import duration_ms

HOURLY, DAILY = "17 * * * *", "43 3 * * *"


class PruneConfig(Config):
    """Which topics are looked after."""

    topics: list[str] = Field(
        default_factory=list, description="Topics or patterns of topics; all if none is named."
    )


class MaintainConfig(Config):
    """Which tables are looked after, and what is kept."""

    groups: list[str] = Field(
        default_factory=list, description="Groups whose tables are meant; all if none is named."
    )
    retention: str = Field(
        "7d", description="Keep files that readers may still have in view for so long."
    )


def build_upkeep(
    loaded: LoadedSpec, groups: Sequence[str]
) -> tuple[list[JobDefinition], list[ScheduleDefinition]]:
    """The jobs and schedules of a project."""
    wanted = any(topic.retention or topic.compaction for topic in loaded.topics.values())
    prune = _job(
        _prune_step(), PRUNE, "Applies retention and compaction. What a group needs stays."
    )
    jobs, schedules = [prune], [_schedule(prune, HOURLY, running=wanted)]
    tables = [name for name in groups if loaded.spec.groups[name].table]
    if tables:
        said = "Joins small files of tables, and removes those that nobody needs."
        jobs.append(_job(_maintain_step(loaded, tables), MAINTAIN, said))
        schedules.append(_schedule(jobs[-1], DAILY, running=False))
    return jobs, schedules


def _job(step: OpDefinition, name: str, description: str) -> JobDefinition:
    only = GraphDefinition(name=name, node_defs=[step])
    return only.to_job(description=description, executor_def=in_process_executor)


def _schedule(job: JobDefinition, cron: str, *, running: bool) -> ScheduleDefinition:
    status = DefaultScheduleStatus.RUNNING if running else DefaultScheduleStatus.STOPPED
    return ScheduleDefinition(
        name=f"{job.name}_schedule", job=job, cron_schedule=cron, default_status=status
    )


def _prune_step() -> OpDefinition:
    @op(name=f"{PRUNE}_step")
    def prune(context: OpExecutionContext, config: PruneConfig, bus: BusResource) -> None:
        try:
            with bus.open() as opened:
                done = opened.maintain(*opened.select(*config.topics))
        except BusError as error:
            raise Failure(str(error), allow_retries=False) from None
        for each in done:
            if each.trimmed or each.compacted or each.held:
                context.log.info(
                    "%s: %s events trimmed, %s compacted, %s held back by %s",
                    *(each.topic, each.trimmed, each.compacted, each.held, each.by or "nobody"),
                )
        context.add_output_metadata(
            {
                "trimmed": sum(each.trimmed for each in done),
                "compacted": sum(each.compacted for each in done),
                "held back": sum(each.held for each in done),
            }
        )

    return prune


def _maintain_step(loaded: LoadedSpec, tables: Sequence[str]) -> OpDefinition:
    @op(name=f"{MAINTAIN}_step")
    def maintain_tables(
        context: OpExecutionContext, config: MaintainConfig, bus: BusResource
    ) -> None:
        try:
            retention_ms = duration_ms(config.retention)
            with bus.open() as opened:
                joined = [
                    _maintain(context, loaded, opened, name, retention_ms)
                    for name in config.groups or tables
                ]
        except (BusError, ValueError) as error:
            raise Failure(str(error), allow_retries=False) from None
        context.add_output_metadata({"files joined or removed": sum(joined)})

    return maintain_tables


def _maintain(
    context: OpExecutionContext, loaded: LoadedSpec, bus: Bus, group: str, retention_ms: int
) -> int:
    """Look after one group's tables; returns how many files are gone."""
    gone = 0
    table = declared_table(loaded, group)
    for each in tables_at(table):
        busy = [delivery.id for delivery in bus.group(group).open_deliveries()]
        done = maintain(each, retention_ms=retention_ms, busy=busy)
        gone += done.files_before - done.files_after + done.removed
        context.log.info(
            "%s: %s files became %s, %s removed",
            *(each.path, done.files_before, done.files_after, done.removed),
        )
    return gone
