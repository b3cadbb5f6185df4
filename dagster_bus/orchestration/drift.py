"""Whether the bus, the runs and a table tell the same story of a group's newest deliveries."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dagster import AssetRecordsFilter, DagsterInstance

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Group
from dagster_bus.orchestration.names import table_key
from dagster_bus.spark.tables import Table, declared_table, holds
from dagster_bus.spec.load import LoadedSpec

NEWEST = 50
"""Runs that are looked at. A table remembers the deliveries of some weeks."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a run has said of its delivery when it was done."""

    delivery: str
    window: str
    run: str


def drift_of(instance: DagsterInstance, loaded: LoadedSpec, group: Group) -> list[str]:
    """Each difference in a sentence, as it looks now."""
    name = group.config.name
    table, spec = declared_table(loaded, name), loaded.spec.groups[name].table
    tables = [table.named(each) for each in spec.results] if spec and spec.results else [table]
    said = list(_said_by_runs(instance, name))
    known = {each.id: each for each in group.deliveries([each.delivery for each in said])}
    waiting = [each for each in group.open_deliveries() if not each.in_flight]
    there = {each.delivery for each in said if _is_in(tables, each.window, each.delivery)}
    unsettled = [each for each in waiting if _is_in(tables, each.window, each.id)]
    return [*differences(said, known, there, unsettled)]


def differences(
    said: Iterable[Told],
    known: Mapping[str, Delivery],
    there: set[str],
    unsettled: Iterable[Delivery],
) -> Iterator[str]:
    """What does not fit together. Pure."""
    for each in said:
        run = f"run {each.run[:8]} has done delivery {each.delivery}"
        if each.delivery not in there:
            yield f"{run}, and the table does not have it: the table was replaced or changed"
        found = known.get(each.delivery)
        if found is None:
            yield f"{run}, and the store does not know it: this is another store"
        elif found.state is not State.DONE:
            yield f"{run}, and the store says that it is {found.state}: an older copy came back"
    for delivery in unsettled:
        yield (
            f"the table has delivery {delivery.id}, and nobody has settled it: its next run will "
            f"(it is {delivery.state})"
        )


def _said_by_runs(instance: DagsterInstance, group: str) -> Iterator[Told]:
    records = instance.fetch_materializations(
        AssetRecordsFilter(asset_key=table_key(group)), limit=NEWEST
    ).records
    for record in records:
        event = record.asset_materialization
        delivery = event.metadata.get("delivery") if event else None
        files = event.metadata.get("files") if event else None
        if event and event.partition and delivery and files and files.value:
            yield Told(str(delivery.value), event.partition, record.run_id)


def _is_in(tables: Iterable[Table], window: str, delivery: str) -> bool:
    return all(holds(each, window, delivery) for each in tables)
