"""A topic as an asset that others write: it has a place in the lineage, and no run of its own."""

from dagster import AssetSpec, TableColumn, TableSchema

from dagster_bus.orchestration.names import topic_key
from dagster_bus.spec.models import TopicSpec


def build_topic_asset(name: str, topic: TopicSpec, columns: dict[str, str]) -> AssetSpec:
    metadata: dict[str, object] = {"topic": name, "partitions": topic.partitions}
    if columns:
        metadata["dagster/column_schema"] = table_schema(columns)
    return AssetSpec(
        key=topic_key(name),
        description=topic.description or None,
        owners=topic.owners,
        group_name="topics",
        kinds={"topic"},
        metadata=metadata,
    )


def table_schema(fields: dict[str, str]) -> TableSchema:
    return TableSchema(columns=[TableColumn(name, type_) for name, type_ in fields.items()])
