"""What `topics.yaml` asks a group to do with its events, in the terms of Spark."""

from dagster_bus.opening import store_url
from dagster_bus.spark.expecting import Expectation
from dagster_bus.spark.pipeline import ONLY, Pipeline, load_pipeline, query_pipeline
from dagster_bus.spark.processing import Work
from dagster_bus.spark.tables import Table
from dagster_bus.spark.tables.declared import declared_table
from dagster_bus.spec.configs import event_filter
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.spec.models import GroupSpec
from dagster_bus.spec.work import ExpectationSpec


def build_work(loaded: LoadedSpec, name: str) -> Work:
    """Raises PipelineError if the pipeline cannot be imported."""
    spec = loaded.spec.groups[name]
    title, pipeline = _pipeline(loaded, name, spec)
    return Work(
        name=title,
        store=store_url(loaded),
        wanted=event_filter(spec.filter),
        columns=loaded.columns_of(name),
        pipeline=pipeline,
        tables=_tables(loaded, name),
        expectations=tuple(_expectation(each, said) for each, said in spec.expect.items()),
        corrupt=spec.corrupt,
        publish=spec.publish,
        compacted=any(loaded.topics[each].compaction for each in loaded.topics_of(name)),
    )


def _pipeline(loaded: LoadedSpec, name: str, spec: GroupSpec) -> tuple[str, Pipeline]:
    """The pipeline, and what its author calls it."""
    if spec.pipeline is not None:
        return spec.pipeline, load_pipeline(spec.pipeline)
    place = loaded.problem(("groups", name, "sql"), "")
    return f"{place.file}:{place.line} (sql)", query_pipeline(spec.sql or "", spec.params)


def _tables(loaded: LoadedSpec, group: str) -> dict[str, Table]:
    """A table for each of the pipeline's results."""
    spec = loaded.spec.groups[group].table
    if spec is None:
        return {}
    table = declared_table(loaded, group)
    return {name: table.named(name) for name in spec.results} or {ONLY: table}


def _expectation(name: str, said: str | ExpectationSpec) -> Expectation:
    if isinstance(said, str):
        return Expectation(name, said)
    return Expectation(name, said.condition, said.on_violation)
