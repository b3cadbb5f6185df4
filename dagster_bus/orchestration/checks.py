"""Checks of groups: dead letters, lag, the age of what waits, and whether bus, runs and tables
agree.

They can be executed from the UI. All but the last are also evaluated whenever the group is
observed, so that they turn red without any run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSpec,
    AssetKey,
    multi_asset_check,
)

from dagster_bus.core.clock import system_clock
from dagster_bus.core.standing import Standing, standing_of
from dagster_bus.opening import Bus
from dagster_bus.orchestration.drift import drift_of
from dagster_bus.orchestration.lots import CHECKED_TOGETHER, in_lots, lot_names
from dagster_bus.orchestration.names import CHECKS, asset_of, dead_letters_key, table_key
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.spec.models import GroupSpec
from dagster_bus.spec.units import in_words

DEAD_LETTERS, LAG, AGE, DRIFT = "dead_letters", "lag", "oldest_event", "offset_drift"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found."""

    asset: AssetKey
    check: str
    passed: bool
    description: str
    metadata: dict[str, Any]

    def result(self) -> AssetCheckResult:
        return AssetCheckResult(
            asset_key=self.asset,
            check_name=self.check,
            passed=self.passed,
            description=self.description,
            metadata=self.metadata,
        )

    def evaluation(self) -> AssetCheckEvaluation:
        return AssetCheckEvaluation(
            asset_key=self.asset,
            check_name=self.check,
            passed=self.passed,
            description=self.description,
            metadata=self.metadata,
        )


def check_specs(group: str, spec: GroupSpec) -> Iterator[AssetCheckSpec]:
    """The checks of one group: what it promises, and what nobody wants."""
    limit = spec.dead_letters.limit if spec.dead_letters else 0
    most = f"at most {limit:,} are" if limit else "none is"
    yield AssetCheckSpec(
        DEAD_LETTERS,
        asset=dead_letters_key(group),
        description=f"Events that the group {group} gave up on: {most} accepted.",
    )
    table, slo = asset_of(group, spec), spec.slo
    if slo and slo.max_lag is not None:
        said = f"At most {slo.max_lag:,} events wait to be processed."
        yield AssetCheckSpec(LAG, asset=table, description=said)
    if slo and slo.max_age is not None:
        said = f"No event waits longer than {in_words(slo.max_age)} to be processed."
        yield AssetCheckSpec(AGE, asset=table, description=said)
    if spec.table:
        said = "What the bus has settled, what runs say that they did, and the table agree."
        yield AssetCheckSpec(DRIFT, asset=table, description=said)


def verdicts(group: str, spec: GroupSpec, standing: Standing, dead: int) -> Iterator[Verdict]:
    """What a look at a group means for its checks."""
    limit = spec.dead_letters.limit if spec.dead_letters else 0
    yield Verdict(
        dead_letters_key(group),
        DEAD_LETTERS,
        dead <= limit,
        f"{dead:,} dead letters; {limit:,} are accepted",
        {"dead letters": dead, "limit": limit},
    )
    table, slo = asset_of(group, spec), spec.slo
    if slo and slo.max_lag is not None:
        said = f"{standing.lag:,} events are not processed; {slo.max_lag:,} may be"
        metadata = {"lag": standing.lag, "limit": slo.max_lag}
        yield Verdict(table, LAG, standing.lag <= slo.max_lag, said, metadata)
    if slo and slo.max_age is not None:
        age_ms = standing.age_ms(system_clock())
        said = f"the oldest of them waits for {age_ms / 1000:.1f} s; {in_words(slo.max_age)} it may"
        ages = {"age in seconds": age_ms / 1000, "limit in seconds": slo.max_age / 1000}
        yield Verdict(table, AGE, age_ms <= slo.max_age, said, ages)


def build_checks(loaded: LoadedSpec, groups: list[str]) -> list[AssetChecksDefinition]:
    """The checks of all groups, a lot of them in one definition. Each can be executed alone."""
    lots = in_lots(groups, CHECKED_TOGETHER)
    names = lot_names(CHECKS, len(groups), CHECKED_TOGETHER)
    return [_checks_of(loaded, name, lot) for name, lot in zip(names, lots, strict=False)]


def _checks_of(loaded: LoadedSpec, name: str, groups: Sequence[str]) -> AssetChecksDefinition:
    by_key = {
        spec.key: (group, spec)
        for group in groups
        for spec in check_specs(group, loaded.spec.groups[group])
    }

    @multi_asset_check(name=name, specs=[spec for _, spec in by_key.values()], can_subset=True)
    def group_checks(
        context: AssetCheckExecutionContext, bus: BusResource
    ) -> Iterator[AssetCheckResult]:
        chosen = context.selected_asset_check_keys
        with bus.open() as opened:
            for group in dict.fromkeys(by_key[key][0] for key in chosen):
                for verdict in _all_verdicts(context, opened, loaded, group, chosen):
                    if AssetCheckKey(verdict.asset, verdict.check) in chosen:
                        yield verdict.result()

    return group_checks


def _all_verdicts(
    context: AssetCheckExecutionContext,
    bus: Bus,
    loaded: LoadedSpec,
    group: str,
    chosen: Any,
) -> Iterator[Verdict]:
    spec = loaded.spec.groups[group]
    dead = sum(bus.dead_letters(group).counts().values())
    yield from verdicts(group, spec, standing_of(bus, bus.group(group)), dead)
    if AssetCheckKey(table_key(group), DRIFT) in chosen:
        found = drift_of(context.instance, loaded, bus.group(group))
        said = "\n".join(f"- {each}" for each in found) or "they agree"
        yield Verdict(table_key(group), DRIFT, not found, said, {"differences": len(found)})
