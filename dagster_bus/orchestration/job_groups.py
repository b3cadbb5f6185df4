"""What is started for deliveries: a job for each table, one for each selection of the user's own
assets, or a job that is there already."""

from dataclasses import dataclass, field
from typing import Any

from dagster import AssetSelection, DagsterError, define_asset_job, in_process_executor

from dagster_bus.errors import SpecError
from dagster_bus.orchestration.names import job_name, table_key
from dagster_bus.orchestration.served import Served
from dagster_bus.spec.group_rules import IN_SPARK
from dagster_bus.spec.load import LoadedSpec


@dataclass(frozen=True, slots=True)
class Started:
    """The groups that runs are started for, with the jobs that are made for them."""

    groups: list[Served] = field(default_factory=list)
    jobs: dict[str, Any] = field(default_factory=dict)
    """By group; one that starts a job of the user's own has none here."""

    @property
    def existing(self) -> list[str]:
        """Groups whose work is not known here."""
        return [each.group for each in self.groups if not each.settles_itself]


def groups_started(loaded: LoadedSpec) -> Started:
    """Raises SpecError if a selection of assets is none."""
    started, problems = Started(), []
    for name, spec in loaded.spec.groups.items():
        in_spark = any(getattr(spec, key) is not None for key in IN_SPARK)
        if not in_spark and spec.job is None and spec.assets is None:
            continue  # somebody else reads it
        job = spec.job or job_name(name)
        started.groups.append(Served(name, job, spec.tags, settles_itself=in_spark))
        if in_spark:
            started.jobs[name] = _table_job(name)
        elif spec.assets is not None:
            try:
                started.jobs[name] = _assets_job(name, spec.assets)
            except DagsterError as error:
                place = ("groups", name, "assets")
                problems.append(loaded.problem(place, f"groups.{name}.assets: {error}"))
    if problems:
        raise SpecError(problems)
    return started


def _table_job(name: str) -> Any:
    return define_asset_job(
        job_name(name),
        selection=[table_key(name)],
        executor_def=in_process_executor,  # a run is one process
        description=f"Works off one delivery of group {name}. Started by its sensor.",
    )


def _assets_job(name: str, selection: str | list[str]) -> Any:
    """Whether the assets are there, Dagster finds out when all definitions are together."""
    return define_asset_job(
        job_name(name),
        selection=AssetSelection.from_coercible(selection),
        description=f"Materializes assets for deliveries of group {name}. Started by its sensor.",
    )
