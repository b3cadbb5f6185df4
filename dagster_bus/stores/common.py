"""What all stores keep in the same form, and say in the same words."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from dagster_bus.core.failure import AttemptError
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import UnknownTopic


def errors_to_text(errors: Sequence[AttemptError]) -> str:
    """As JSON, which has room for what a BSON document has not: half a character, for one."""
    return json.dumps([asdict(error) for error in errors])


def errors_from_text(text: str) -> tuple[AttemptError, ...]:
    return tuple(AttemptError(**error) for error in json.loads(text))


def unknown_partition(at: TopicPartition) -> UnknownTopic:
    return UnknownTopic(f"partition {at.partition} of topic {at.topic!r} is not in the store")
