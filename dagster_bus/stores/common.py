"""What all stores keep in the same form, and say in the same words."""

import json
from collections.abc import Sequence
from dataclasses import fields

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.store import Change, Store
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import BusError, StaleState, UnknownTopic

_ERROR_FIELDS = [field.name for field in fields(AttemptError)]


def errors_to_text(errors: Sequence[AttemptError]) -> str:
    """As JSON, which has room for what a BSON document has not: half a character, for one."""
    if not errors:
        return "[]"
    return json.dumps([{name: getattr(error, name) for name in _ERROR_FIELDS} for error in errors])


def errors_from_text(text: str) -> tuple[AttemptError, ...]:
    if text == "[]":
        return ()
    return tuple(AttemptError(**error) for error in json.loads(text))


def unknown_partition(at: TopicPartition) -> UnknownTopic:
    return UnknownTopic(f"partition {at.partition} of topic {at.topic!r} is not in the store")


def not_the_next(deliveries: Sequence[Delivery]) -> StaleState:
    """What is said when at least one of some deliveries is not at the version before."""
    one = deliveries[0]
    if len(deliveries) == 1:
        return StaleState(f"delivery {one.id} is no longer at version {one.version - 1}")
    return StaleState(
        f"of {len(deliveries)} deliveries from {one.id} on, some have changed in the meantime"
    )


def try_commit(store: Store, change: Change) -> BusError | None:
    """Write a change, or tell why it was not written."""
    try:
        store.commit(change)
    except BusError as error:
        return error
    return None
