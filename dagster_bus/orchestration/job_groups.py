"""What is started for deliveries: a job for each table, one for each selection of the user's own
assets, or a job that is there already."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagster import (
    AssetsDefinition,
    AssetSelection,
    DagsterError,
    Definitions,
    ExecutorDefinition,
    JobDefinition,
    define_asset_job,
)

from dagster_bus.core.naming import job_name
from dagster_bus.errors import SpecError
from dagster_bus.orchestration.lots import JOBS_TOGETHER, in_lots
from dagster_bus.orchestration.names import table_key
from dagster_bus.orchestration.served import Served
from dagster_bus.spec.load import LoadedSpec


@dataclass(frozen=True, slots=True)
class Started:
    """The groups that runs are started for, with the jobs that are made for them."""

    groups: list[Served] = field(default_factory=list)
    jobs: dict[str, Any] = field(default_factory=dict)
    """By group; one that starts a job of the user's own has none here."""


def groups_started(
    loaded: LoadedSpec,
    tables: Mapping[str, AssetsDefinition],
    resources: Mapping[str, Any],
    executor: ExecutorDefinition,
) -> Started:
    """Raises SpecError if a selection of assets is none."""
    started, problems = Started(), []
    table_jobs = dict(_table_jobs(tables, resources, executor))
    for name, spec in loaded.spec.groups.items():
        table = tables.get(name)
        if table is None and spec.job is None and spec.assets is None:
            continue  # somebody else reads it
        job = spec.job or job_name(name)
        started.groups.append(Served(name, job, spec.tags, settles_itself=table is not None))
        if table is not None:
            started.jobs[name] = table_jobs[name]
        elif spec.assets is not None:
            try:
                started.jobs[name] = _assets_job(name, spec.assets)
            except DagsterError as error:
                place = ("groups", name, "assets")
                problems.append(loaded.problem(place, f"groups.{name}.assets: {error}"))
    if problems:
        raise SpecError(problems)
    return started


def _table_jobs(
    tables: Mapping[str, AssetsDefinition],
    resources: Mapping[str, Any],
    executor: ExecutorDefinition,
) -> Iterator[tuple[str, JobDefinition]]:
    """The jobs of groups' sensors, made from a few tables at a time: for each job that is left to
    it, Dagster looks at all assets, which takes minutes for thousands."""
    for lot in in_lots(tables, JOBS_TOGETHER):
        alone = Definitions(
            assets=[tables[group] for group in lot],
            jobs=[_table_job(group, executor) for group in lot],
            resources=resources,
        )
        for group in lot:
            yield group, alone.resolve_job_def(job_name(group))


def _table_job(group: str, executor: ExecutorDefinition) -> Any:
    return define_asset_job(
        job_name(group),
        selection=[table_key(group)],
        executor_def=executor,
        description=f"Works off one delivery of group {group}. Started by its sensor.",
    )


def _assets_job(name: str, selection: str | list[str]) -> Any:
    """Whether the assets are there, Dagster finds out when all definitions are together."""
    return define_asset_job(
        job_name(name),
        selection=AssetSelection.from_coercible(selection),
        description=f"Materializes assets for deliveries of group {name}. Started by its sensor.",
    )
