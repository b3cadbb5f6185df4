"""`topics.yaml` compiled into Dagster definitions. The store is not touched here."""

from pathlib import Path

from dagster import Definitions

from dagster_bus.errors import PipelineError, SpecError
from dagster_bus.orchestration.dead_letters import build_dead_letters_asset
from dagster_bus.orchestration.job_groups import groups_started
from dagster_bus.orchestration.names import topic_key, unusable_names
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.orchestration.sensors import build_sensors
from dagster_bus.orchestration.sessions import BusPySparkResource
from dagster_bus.orchestration.tables import build_table_asset
from dagster_bus.orchestration.topics import build_topic_asset
from dagster_bus.orchestration.works import build_work
from dagster_bus.spark.processing import Work
from dagster_bus.spark.session import session_config, use_this_python
from dagster_bus.spec.load import LoadedSpec, load_spec
from dagster_bus.spec.unsupported import not_yet


def load_definitions(topics_yaml: str | Path) -> Definitions:
    """Resources, assets, jobs and sensors for all that a file declares.

    Raises SpecError, with the place of every mistake, if the file cannot be used."""
    loaded = load_spec(topics_yaml)
    works = _works(loaded)
    started = groups_started(loaded)
    use_this_python(loaded.spec.spark)
    return Definitions(
        assets=[
            *(
                build_topic_asset(name, topic, loaded.columns_of_topic(name))
                for name, topic in loaded.topics.items()
            ),
            *(build_table_asset(loaded, name, work) for name, work in works.items()),
            *(build_dead_letters_asset(name) for name in works),
            *(
                build_dead_letters_asset(name, [topic_key(each) for each in loaded.topics_of(name)])
                for name in started.existing
            ),
        ],
        jobs=[*started.jobs.values()],
        sensors=build_sensors(started, loaded.spec.dagster.sensors),
        resources={
            "bus": BusResource(topics_yaml=str(Path(topics_yaml).resolve())),
            "pyspark": BusPySparkResource(
                spark_config=session_config(loaded.spec.spark),
                project=str(loaded.folder.absolute()),
            ),
        },
    )


def _works(loaded: LoadedSpec) -> dict[str, Work]:
    """What each group does. Pipelines are imported now, so that a typing mistake costs no event."""
    works = {}
    problems = list(unusable_names(loaded))
    for name, spec in loaded.spec.groups.items():
        problems += not_yet(loaded, name)
        if spec.pipeline is None and spec.sql is None:  # somebody else reads it
            continue
        try:
            works[name] = build_work(loaded, name)
        except PipelineError as error:
            problems.append(loaded.problem(("groups", name, "pipeline"), str(error)))
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return works
