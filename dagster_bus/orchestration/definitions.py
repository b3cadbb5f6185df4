"""`topics.yaml` compiled into Dagster definitions. The store is not touched here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster import Definitions, ExecutorDefinition, in_process_executor

from dagster_bus.errors import PipelineError, SpecError
from dagster_bus.orchestration.checks import build_checks
from dagster_bus.orchestration.dead_letters import build_dead_letters
from dagster_bus.orchestration.job_groups import groups_started
from dagster_bus.orchestration.letters_jobs import build_letters_jobs
from dagster_bus.orchestration.names import table_key, topic_key, unusable_names
from dagster_bus.orchestration.observing import build_observing
from dagster_bus.orchestration.replaying import build_replay_job
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.orchestration.sensors import build_sensors
from dagster_bus.orchestration.sessions import BusPySparkResource
from dagster_bus.orchestration.tables import build_table_asset
from dagster_bus.orchestration.topics import build_topic_assets
from dagster_bus.orchestration.uncollected import uncollected
from dagster_bus.orchestration.upkeep import build_upkeep
from dagster_bus.orchestration.windows import unusable_windows
from dagster_bus.orchestration.works import build_work
from dagster_bus.spark.processing import Work
from dagster_bus.spark.session import session_config, use_this_python
from dagster_bus.spec.kept import kept_spec
from dagster_bus.spec.load import LoadedSpec


def load_definitions(
    topics_yaml: str | Path,
    *,
    resources: Mapping[str, Any] | None = None,
    executor: ExecutorDefinition = in_process_executor,
) -> Definitions:
    """Resources, assets, checks, jobs, sensors and schedules for all that a file declares.

    `resources` take the place of those of the same name (`bus`, `pyspark`), or come beside them;
    `executor` is that of the groups' runs, each of which is one process if not said otherwise.
    Definitions of your own are added with `Definitions.merge`.

    Raises SpecError, with the place of every mistake, if the file cannot be used."""
    with uncollected():
        return _definitions(Path(topics_yaml), dict(resources or {}), executor)


def _definitions(
    topics_yaml: Path, resources: Mapping[str, Any], executor: ExecutorDefinition
) -> Definitions:
    loaded = kept_spec(topics_yaml)
    works = _works(loaded)
    use_this_python(loaded.spec.spark)
    all_resources = {**_resources(loaded, topics_yaml), **resources}
    tables = {name: build_table_asset(loaded, name, work) for name, work in works.items()}
    started = groups_started(loaded, tables, all_resources, executor)
    groups = [each.group for each in started.groups]
    letters_from = {
        name: [table_key(name)] if name in tables else [*map(topic_key, loaded.topics_of(name))]
        for name in groups
    }
    upkeep_jobs, schedules = build_upkeep(loaded, list(works))
    return Definitions(
        assets=[
            *build_topic_assets(loaded),
            *tables.values(),
            *build_dead_letters(loaded, letters_from),
        ],
        asset_checks=build_checks(loaded, groups),
        jobs=[
            *started.jobs.values(),
            *([build_replay_job(works)] if works else []),
            *(build_letters_jobs() if groups else ()),
            *upkeep_jobs,
        ],
        sensors=[
            *build_sensors(started, loaded.spec.dagster.sensors),
            build_observing(loaded, groups),
        ],
        schedules=schedules,
        resources=all_resources,
        executor=executor,
    )


def _resources(loaded: LoadedSpec, topics_yaml: Path) -> dict[str, Any]:
    return {
        "bus": BusResource(topics_yaml=str(topics_yaml.resolve())),
        "pyspark": BusPySparkResource(
            spark_config=session_config(loaded.spec.spark),
            project=str(loaded.folder.absolute()),
        ),
    }


def _works(loaded: LoadedSpec) -> dict[str, Work]:
    """What each group does. Pipelines are imported now, so that a typing mistake costs no event."""
    works = {}
    problems = [*unusable_names(loaded), *unusable_windows(loaded)]
    for name, spec in loaded.spec.groups.items():
        if spec.pipeline is None and spec.sql is None:  # somebody else reads it
            continue
        try:
            works[name] = build_work(loaded, name)
        except PipelineError as error:
            problems.append(loaded.problem(("groups", name, "pipeline"), str(error)))
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return works
