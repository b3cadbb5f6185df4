"""Groups' dead letters as assets: the newest in a table, and counts by kind of error.

All of them are one definition, whose parts can be looked at alone: that is what lets thousands of
groups load quickly.
"""

from collections.abc import Iterator, Mapping, Sequence

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    AssetSpec,
    MaterializeResult,
    MetadataValue,
    multi_asset,
)

from dagster_bus.core.naming import definition_name
from dagster_bus.opening import Bus
from dagster_bus.orchestration.declaration import declaration
from dagster_bus.orchestration.letters_shown import kinds_of, records_of, stories_of
from dagster_bus.orchestration.names import LETTERS, PURGE, REDRIVE, dead_letters_key
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.spec.load import LoadedSpec

NEWEST = 50


def build_dead_letters(
    loaded: LoadedSpec, upstream: Mapping[str, Sequence[AssetKey]]
) -> list[AssetsDefinition]:
    """`upstream` has the groups, each with the assets that its letters come from."""
    if not upstream:
        return []
    by_key = {dead_letters_key(group): group for group in upstream}

    @multi_asset(
        name=LETTERS,
        specs=[_spec(loaded, group, deps) for group, deps in upstream.items()],
        can_subset=True,
    )
    def all_dead_letters(
        context: AssetExecutionContext, bus: BusResource
    ) -> Iterator[MaterializeResult[None]]:
        with bus.open() as opened:
            for key in sorted(context.selected_asset_keys):
                metadata = dead_letter_metadata(opened, by_key[key])
                count = metadata["dead letters"].value
                context.log.info("%s dead letters in group %s", count, by_key[key])
                yield MaterializeResult(asset_key=key, metadata=metadata)

    return [all_dead_letters]


def _spec(loaded: LoadedSpec, group: str, upstream: Sequence[AssetKey]) -> AssetSpec:
    spec = loaded.spec.groups[group]
    return AssetSpec(
        key=dead_letters_key(group),
        deps=upstream,
        description=(
            f"Events that the group {group} gave up on, each with every error on its way. "
            "Brought up to date by the group's sensor; materialize it to look again now. The job "
            f"{REDRIVE} sends them back, {PURGE} deletes them."
        ),
        group_name=definition_name(group),
        owners=spec.owners,
        tags=spec.labels,
        kinds={"dead_letters"},
        metadata={"group": group, **declaration(loaded, ("groups", group), spec.docs)},
        skippable=True,
    )


def dead_letters_now(bus: Bus, group: str) -> AssetMaterialization:
    """The dead letters as they are, for whoever has seen or made them change."""
    return AssetMaterialization(
        asset_key=dead_letters_key(group), metadata=dead_letter_metadata(bus, group)
    )


def dead_letter_metadata(bus: Bus, group: str) -> dict[str, MetadataValue]:
    counts = bus.dead_letters(group).counts()
    newest = bus.dead_letters(group).list(limit=NEWEST)
    metadata: dict[str, MetadataValue] = {"dead letters": MetadataValue.int(sum(counts.values()))}
    if newest:
        metadata["why"] = MetadataValue.md(kinds_of(newest, counts))
        metadata["newest"] = MetadataValue.table(records_of(newest))
        metadata["in full"] = MetadataValue.md(stories_of(group, newest, counts))
    return metadata
