"""Topic configurations as the text that stores keep, and what all stores say of them."""

import json
from dataclasses import asdict, fields
from functools import lru_cache

from dagster_bus.core.topic import SchemaConfig, SchemaVersion, TopicConfig
from dagster_bus.errors import PartitionCountChanged


def config_to_text(config: TopicConfig) -> str:
    return json.dumps(asdict(config), ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=4096)
def config_from_text(text: str) -> TopicConfig:
    known = {field.name for field in fields(TopicConfig)}  # a newer version may say more
    data = {name: value for name, value in json.loads(text).items() if name in known}
    schema = data["schema"]
    if schema is not None:
        versions = {int(n): SchemaVersion(**v) for n, v in schema["versions"].items()}
        schema = SchemaConfig(**{**schema, "versions": versions})
    return TopicConfig(**{**data, "schema": schema})


def require_same_partitions(declared: TopicConfig, found: int) -> None:
    """Refuse a number of partitions that is not the one that the log has."""
    if declared.partitions != found:
        raise PartitionCountChanged(
            f"topic {declared.name} has {found} partitions in the store and is declared with "
            f"{declared.partitions}: keys would move to other partitions and lose their order. "
            "Declare the old number, or a new topic"
        )
