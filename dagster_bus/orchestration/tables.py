"""A group's table as a partitioned asset. Its run leases what its sensor has reserved."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    FreshnessPolicy,
    MaterializeResult,
    Nothing,
    OpDefinition,
    Out,
)
from dagster_pyspark import PySparkResource

from dagster_bus.core.naming import definition_name
from dagster_bus.errors import DeliveryError
from dagster_bus.orchestration.columns import column_lineage
from dagster_bus.orchestration.declaration import declaration
from dagster_bus.orchestration.names import DELIVERY_TAG, RESERVATION_TAG, table_key, topic_key
from dagster_bus.orchestration.replacing import replace_windows
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.orchestration.windows import partitions_of
from dagster_bus.orchestration.working import work_off
from dagster_bus.spark.processing import Work
from dagster_bus.spec.configs import windows_of
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.spec.models import GroupSpec

RESULT = "result"
OUTS = {RESULT: Out(Nothing, is_required=False)}
"""What every table's run has: one output, which stays out if there was nothing to do."""

WINDOWS_A_RUN = 24
"""In a backfill. Spark is started once for so many, and a run that is lost costs no more."""

SHORTEST_FRESHNESS = timedelta(minutes=1, seconds=1)
"""Dagster takes none that is shorter."""

_KINDS = {"delta": "deltalake"}
"""What Dagster calls the formats of tables, where it has another name."""


def build_table_asset(loaded: LoadedSpec, name: str, work: Work) -> AssetsDefinition:
    """From its parts, which takes a third of the time of `@asset`: there may be thousands."""
    spec = loaded.spec.groups[name]
    step = OpDefinition(
        compute_fn=_run_of(name, work),
        name=definition_name(name),
        outs=OUTS,
        required_resource_keys={"bus", "pyspark"},
        pool=spec.pool,
    )
    return AssetsDefinition(
        node_def=step,
        keys_by_output_name={RESULT: table_key(name)},
        specs=[_spec(loaded, name, work)],
        backfill_policy=BackfillPolicy.multi_run(WINDOWS_A_RUN),
    )


def _spec(loaded: LoadedSpec, name: str, work: Work) -> AssetSpec:
    spec = loaded.spec.groups[name]
    return AssetSpec(
        key=table_key(name),
        deps=[topic_key(topic) for topic in loaded.topics_of(name)],
        partitions_def=partitions_of(windows_of(spec.window)),
        description=spec.description or f"The table of group {name}.",
        owners=spec.owners,
        group_name=definition_name(name),
        kinds={"spark", *_formats(work), *({"sql"} if spec.sql else ())},
        freshness_policy=_freshness(spec),
        tags=spec.labels,
        metadata={
            "group": name,
            "pipeline": work.name,
            **({"publishes to": topic_key(work.publish)} if work.publish else {}),
            **_places(work),
            **column_lineage(loaded, name),
            **declaration(loaded, ("groups", name), spec.docs),
        },
        skippable=True,
    )


def _run_of(name: str, work: Work) -> Callable[..., Iterator[MaterializeResult[None]]]:
    """What a run of the asset does: work a delivery off, or make windows anew."""

    def run(
        context: AssetExecutionContext, _inputs: Mapping[str, Any]
    ) -> Iterator[MaterializeResult[None]]:
        bus: BusResource = context.resources.bus
        pyspark: PySparkResource = context.resources.pyspark
        delivery_id = context.run.tags.get(DELIVERY_TAG)
        with bus.open() as opened:
            group = opened.group(name)
            if delivery_id is None:
                yield replace_windows(context, lambda: pyspark.spark_session, work, group)
                return
            reservation = int(context.run.tags[RESERVATION_TAG])
            try:
                held = group.lease(delivery_id, reservation=reservation, worker=context.run.run_id)
            except DeliveryError as gone:
                context.log.warning("Nothing to do: %s.", gone)
                return
            context.log.info(
                "Attempt %s of delivery %s: %s events.", held.attempt, held.id, held.size
            )
            yield work_off(lambda: pyspark.spark_session, work, group, held)

    return run


def _freshness(spec: GroupSpec) -> FreshnessPolicy | None:
    """A table that gets no rows for longer than an event may wait is looked at with suspicion.
    Dagster asks for materializations, so that a quiet topic looks the same as a group that hangs;
    the checks can tell the two apart."""
    if spec.slo is None or spec.slo.max_age is None:
        return None
    return FreshnessPolicy.time_window(
        fail_window=max(timedelta(milliseconds=spec.slo.max_age), SHORTEST_FRESHNESS)
    )


def _places(work: Work) -> dict[str, str]:
    """Where the tables lie."""
    return {f"table {name}".strip(): table.path for name, table in work.tables.items()}


def _formats(work: Work) -> set[str]:
    return {_KINDS.get(table.format, table.format) for table in work.tables.values()}
