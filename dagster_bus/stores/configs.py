"""Topic configurations as the plain data that stores keep, and back."""

from dataclasses import asdict
from typing import Any

from dagster_bus.core.topic import SchemaConfig, SchemaVersion, TopicConfig


def config_to_data(config: TopicConfig) -> dict[str, Any]:
    """Plain data, fit for JSON and BSON: every key is text."""
    data = asdict(config)
    if config.schema is not None:
        versions = data["schema"]["versions"].items()
        data["schema"]["versions"] = {str(number): version for number, version in versions}
    return data


def config_from_data(data: dict[str, Any]) -> TopicConfig:
    schema = data.get("schema")
    if schema is not None:
        versions = {int(n): SchemaVersion(**v) for n, v in schema["versions"].items()}
        schema = SchemaConfig(**{**schema, "versions": versions})
    return TopicConfig(**{**data, "schema": schema})
