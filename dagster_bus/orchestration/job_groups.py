"""What is started for deliveries: a job for each table, one for each selection of the user's own
assets, or a job that is there already."""

from collections.abc import Mapping
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
    for name, spec in loaded.spec.groups.items():
        table = tables.get(name)
        if table is None and spec.job is None and spec.assets is None:
            continue  # somebody else reads it
        job = spec.job or job_name(name)
        started.groups.append(Served(name, job, spec.tags, settles_itself=table is not None))
        if table is not None:
            started.jobs[name] = _table_job(name, table, resources, executor)
        elif spec.assets is not None:
            try:
                started.jobs[name] = _assets_job(name, spec.assets)
            except DagsterError as error:
                place = ("groups", name, "assets")
                problems.append(loaded.problem(place, f"groups.{name}.assets: {error}"))
    if problems:
        raise SpecError(problems)
    return started


def _table_job(
    group: str, table: AssetsDefinition, resources: Mapping[str, Any], executor: ExecutorDefinition
) -> JobDefinition:
    """The job of a group's sensor, made from its table alone: Dagster looks at all assets for each
    job that is left to it, which takes minutes for thousands."""
    job = define_asset_job(
        job_name(group),
        selection=[table_key(group)],
        executor_def=executor,
        description=f"Works off one delivery of group {group}. Started by its sensor.",
    )
    alone = Definitions(assets=[table], jobs=[job], resources=resources)
    return alone.resolve_job_def(job_name(group))


def _assets_job(name: str, selection: str | list[str]) -> Any:
    """Whether the assets are there, Dagster finds out when all definitions are together."""
    return define_asset_job(
        job_name(name),
        selection=AssetSelection.from_coercible(selection),
        description=f"Materializes assets for deliveries of group {name}. Started by its sensor.",
    )
