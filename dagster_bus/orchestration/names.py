"""Names of topics and groups in Dagster's terms, and the tags that tie a run to its delivery."""

from collections.abc import Iterator

from dagster import AssetKey

from dagster_bus.core.delivery import Delivery
from dagster_bus.errors import Problem
from dagster_bus.spec.load import LoadedSpec

GROUP_TAG = "dagster_bus/group"
DELIVERY_TAG = "dagster_bus/delivery"
RESERVATION_TAG = "dagster_bus/reservation"
ATTEMPT_TAG = "dagster_bus/attempt"
RANGES_TAG = "dagster_bus/ranges"


def definition_name(name: str) -> str:
    """A group's name as Dagster wants it. Group names have no underscores, so none collide."""
    return name.replace("-", "_")


def job_name(group: str) -> str:
    return f"{definition_name(group)}_job"


def topic_key(topic: str) -> AssetKey:
    return AssetKey([definition_name(segment) for segment in topic.split(".")])


def table_key(group: str) -> AssetKey:
    return AssetKey([definition_name(group)])


def dead_letters_key(group: str) -> AssetKey:
    return AssetKey([definition_name(group), "dead_letters"])


def run_key(delivery: Delivery) -> str:
    """Never the same twice: a run key that Dagster has seen is skipped for good."""
    return f"{delivery.id}:{delivery.attempt}:{delivery.reservation}"


def run_tags(delivery: Delivery) -> dict[str, str]:
    return {
        GROUP_TAG: delivery.group,
        DELIVERY_TAG: delivery.id,
        RESERVATION_TAG: str(delivery.reservation),
        ATTEMPT_TAG: str(delivery.attempt),
        RANGES_TAG: " ".join(str(part) for part in delivery.ranges),
        "dagster/max_retries": "0",  # the bus decides when to try again
    }


def colliding_keys(loaded: LoadedSpec) -> Iterator[Problem]:
    """Topics and groups that would be the same asset."""
    taken: dict[AssetKey, str] = {}
    wanted = [(topic_key(name), ("topics", name)) for name in loaded.spec.topics]
    for name in loaded.spec.groups:
        wanted += [(key(name), ("groups", name)) for key in (table_key, dead_letters_key)]
    for asset_key, path in wanted:
        other = taken.setdefault(asset_key, ".".join(path))
        if other != ".".join(path):
            yield loaded.problem(
                path,
                f"{'.'.join(path)} and {other} would both be the asset "
                f"{asset_key.to_user_string()!r} in Dagster; rename one of them",
            )
