"""Names of topics and groups in Dagster's terms, and the tags that tie a run to its delivery."""

import keyword
from collections.abc import Iterator

from dagster import AssetKey

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.naming import (
    dead_letters_path,
    definition_name,
    job_name,
    sensor_name,
    table_path,
    topic_path,
)
from dagster_bus.errors import Problem
from dagster_bus.orchestration.lots import CHECKED_TOGETHER, lot_names
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.spec.models import GroupSpec

GROUP_TAG = "dagster_bus/group"
DELIVERY_TAG = "dagster_bus/delivery"
RESERVATION_TAG = "dagster_bus/reservation"
ATTEMPT_TAG = "dagster_bus/attempt"
RANGES_TAG = "dagster_bus/ranges"


REDRIVE, PURGE = "redrive_dead_letters", "purge_dead_letters"
PRUNE, MAINTAIN = "prune_topics", "maintain_tables"
LETTERS, CHECKS, OBSERVE = "all_dead_letters", "group_checks", "observe_bus"
REPLAY = "replay"
OWN = (
    *(REPLAY, f"{REPLAY}_events"),
    *(REDRIVE, PURGE, PRUNE, MAINTAIN, LETTERS, CHECKS, OBSERVE),
    *(f"{job}_step" for job in (REDRIVE, PURGE, PRUNE, MAINTAIN)),
    *(f"{job}_schedule" for job in (PRUNE, MAINTAIN)),
)
"""What the project as a whole has, whatever its groups are called."""

RESERVED = {*keyword.kwlist, "context", "conf", "config", "meta", "type", "input", "output"} | {
    *("bool", "dict", "float", "int", "str", "arg_dict", "input_arg_dict", "output_arg_dict"),
}
"""Names that no asset may have in Dagster."""


def topic_key(topic: str) -> AssetKey:
    return AssetKey(topic_path(topic))


def table_key(group: str) -> AssetKey:
    return AssetKey(table_path(group))


def asset_of(group: str, spec: GroupSpec) -> AssetKey:
    """What stands for a group in the lineage: its table, or if others do its work its letters."""
    in_spark = spec.pipeline is not None or spec.sql is not None
    return table_key(group) if in_spark else dead_letters_key(group)


def dead_letters_key(group: str) -> AssetKey:
    return AssetKey(dead_letters_path(group))


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


def unusable_names(loaded: LoadedSpec) -> Iterator[Problem]:
    """Names that Dagster would refuse, or take for one another."""
    checks = lot_names(CHECKS, len(loaded.spec.groups), CHECKED_TOGETHER)
    taken = dict.fromkeys([*OWN, *checks], "the bus's own work")
    names = [(topic_key(name).to_user_string(), ("topics", name)) for name in loaded.spec.topics]
    for group in loaded.spec.groups:
        path = ("groups", group)
        if definition_name(group) in RESERVED:
            yield loaded.problem(path, f"{group!r} is a word that Dagster keeps for itself; rename")
        assets = (table_key(group), dead_letters_key(group))
        names += [(key.to_user_string(), path) for key in assets]
        names += [("__".join(key.path), path) for key in assets if len(key.path) > 1]
        names += [(name, path) for name in (job_name(group), sensor_name(group))]
    for name, path in names:
        other = taken.setdefault(name, ".".join(path))
        if other != ".".join(path):
            yield loaded.problem(
                path,
                f"{'.'.join(path)} and {other} would both be called {name!r} in Dagster; "
                "rename one of them",
            )
