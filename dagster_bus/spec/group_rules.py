"""What the parts of a group ask of each other, of topics and of retry policies."""

from collections.abc import Iterator, Mapping

from dagster_bus.core.topic import matching
from dagster_bus.errors import Problem, SpecError
from dagster_bus.spec.groups import GroupSpec, StartSpec
from dagster_bus.spec.hints import Path, hint
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.wrong import is_understood, needs_one, only_one, wrong

IN_SPARK = ("pipeline", "sql")
WORKS = (*IN_SPARK, "job", "assets")
RESULTS = ("table", "publish")
NEEDS_SPARK = (*RESULTS, "expect", "corrupt")


def group_rules(loaded: LoadedSpec, name: str) -> Iterator[Problem]:
    """Every mistake of this kind in one group."""
    group, place = loaded.spec.groups[name], ("groups", name)
    yield from _references(loaded, place, group)
    yield from _work(loaded, place)
    yield from _memory(loaded, name)
    if isinstance(group.start, StartSpec):
        yield from needs_one(loaded, (*place, "start"), ("offset", "timestamp"), only=True)
    if group.slo is not None:
        yield from needs_one(loaded, (*place, "slo"), ("max_lag", "max_age"))
    if works_in_spark(loaded, name):
        yield from loaded.conflicting_columns(name, _known_columns(loaded, name))


def works_in_spark(loaded: LoadedSpec, group: str) -> bool:
    """Whether a group has a pipeline or a query."""
    return any(loaded.is_written("groups", group, key) for key in IN_SPARK)


def _references(loaded: LoadedSpec, place: Path, group: GroupSpec) -> Iterator[Problem]:
    topics, policies = loaded.topics, loaded.keys("retry_policies")
    for index, pattern in enumerate(group.topics):
        if not matching(pattern, topics) and loaded.has_all_topics():
            message = f"no declared topic matches {pattern!r}{hint(pattern, topics)}"
            yield wrong(loaded, (*place, "topics", index), message)
    if group.retry is not None and group.retry not in policies:
        message = f"no retry policy {group.retry!r} is declared{hint(group.retry, policies)}"
        yield wrong(loaded, (*place, "retry"), message)


def _work(loaded: LoadedSpec, place: Path) -> Iterator[Problem]:
    """One kind of work at most, with what belongs to it and nothing else."""
    yield from only_one(loaded, place, WORKS)
    written = loaded.keys(*place)
    if any(key in written for key in IN_SPARK):
        yield from needs_one(loaded, place, RESULTS)
    elif is_understood(loaded, place):
        for key in NEEDS_SPARK:
            if key in written:
                message = "only a pipeline or sql has rows for this (add one, or remove this)"
                yield wrong(loaded, (*place, key), message)
        if "pool" in written:
            message = "a job or an asset of your own names its pool itself (remove this)"
            yield wrong(loaded, (*place, "pool"), message)
    if "sql" in written and "results" in loaded.keys(*place, "table"):
        message = "a query has one result (remove this, or write a pipeline)"
        yield wrong(loaded, (*place, "table", "results"), message)
    if "publish" in written and "results" in loaded.keys(*place, "table"):
        message = "only the rows of a single result can be published (remove this, or `results`)"
        yield wrong(loaded, (*place, "publish"), message)
    if "params" in written and "sql" not in written:
        yield wrong(loaded, (*place, "params"), "only sql has parameters (remove this)")


def _memory(loaded: LoadedSpec, name: str) -> Iterator[Problem]:
    """What lives in the memory of one process cannot be reached from a run."""
    topics, keys = loaded.topics, loaded.keys("groups", name)
    in_memory = [topic for topic in loaded.topics_of(name) if not topics[topic].durable]
    if in_memory and any(key in keys for key in WORKS):
        message = f"no run can read a topic that is not durable: {', '.join(in_memory)}"
        yield wrong(loaded, ("groups", name, "topics"), f"{message} (make it durable)")


def _known_columns(loaded: LoadedSpec, group: str) -> dict[str, Mapping[str, str]]:
    """Columns by topic, as far as they are known without importing a model."""
    columns = {}
    for topic in loaded.topics_of(group):
        schema = loaded.schemas.get(topic)
        version = schema.versions.get(schema.current) if schema else None
        if version is None or version.kind == "model":
            continue
        try:
            columns[topic] = loaded.columns_of_topic(topic)
        except SpecError:  # said already
            continue
    return columns
