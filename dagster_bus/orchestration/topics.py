"""A topic as an asset that others write: it has a place in the lineage, and no run of its own."""

from collections.abc import Sequence

from dagster import AssetSpec

from dagster_bus.core.naming import definition_name
from dagster_bus.orchestration.columns import table_schema
from dagster_bus.orchestration.declaration import declaration
from dagster_bus.orchestration.names import table_key, topic_key
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.stores import is_mongo


def build_topic_assets(loaded: LoadedSpec) -> list[AssetSpec]:
    """All topics, each downstream of the groups that publish to it.

    One that a single group publishes to is shown with that group's table: the graph then leads from
    box to box, and not back to the topics."""
    writers: dict[str, list[str]] = {}
    for group, spec in loaded.spec.groups.items():
        if spec.publish is not None:
            writers.setdefault(spec.publish, []).append(group)
    return [_spec(loaded, name, writers.get(name, ())) for name in loaded.topics]


def _spec(loaded: LoadedSpec, name: str, writers: Sequence[str]) -> AssetSpec:
    topic, columns = loaded.topics[name], loaded.columns_of_topic(name)
    metadata: dict[str, object] = {
        "topic": name,
        "partitions": topic.partitions,
        **declaration(loaded, ("topics", name), topic.docs),
    }
    if columns:
        metadata["dagster/column_schema"] = table_schema(columns)
    return AssetSpec(
        key=topic_key(name),
        deps=[table_key(group) for group in writers],
        description=topic.description or None,
        owners=topic.owners,
        group_name=definition_name(writers[0]) if len(writers) == 1 else "topics",
        kinds={"topic", "mongodb" if is_mongo(loaded.spec.store) else "sqlite"},
        tags=topic.labels,
        metadata=metadata,
    )
