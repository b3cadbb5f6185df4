"""A group's table as a partitioned asset. Its run leases what its sensor has reserved."""

from collections.abc import Iterator

from dagster import (
    AssetExecutionContext,
    AssetsDefinition,
    Failure,
    HourlyPartitionsDefinition,
    MaterializeResult,
    asset,
)
from dagster_pyspark import PySparkResource

from dagster_bus.core.window import FIRST_WINDOW, KEY_FORMAT
from dagster_bus.errors import DeliveryError
from dagster_bus.orchestration.names import (
    DELIVERY_TAG,
    RESERVATION_TAG,
    definition_name,
    table_key,
    topic_key,
)
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.orchestration.working import work_off
from dagster_bus.spark.processing import Work
from dagster_bus.spec.load import LoadedSpec

BY_HAND = (
    "This table is filled by its sensor, and a run needs a delivery that the sensor has reserved. "
    "Turn the sensor on (Automation) and publish events; nothing was changed."
)


_KINDS = {"delta": "deltalake"}
"""What Dagster calls the formats of tables, where it has another name."""


def hourly_windows() -> HourlyPartitionsDefinition:
    """The windows of every table. The hour that is still open is among them."""
    return HourlyPartitionsDefinition(start_date=FIRST_WINDOW, fmt=KEY_FORMAT, end_offset=1)


def build_table_asset(loaded: LoadedSpec, name: str, work: Work) -> AssetsDefinition:
    spec = loaded.spec.groups[name]

    @asset(
        key=table_key(name),
        deps=[topic_key(topic) for topic in loaded.topics_of(name)],
        partitions_def=hourly_windows(),
        description=spec.description or f"The table of group {name}.",
        owners=spec.owners,
        group_name=definition_name(name),
        kinds={"spark", *_formats(work)},
        metadata={"group": name, "pipeline": work.name, **_places(work)},
        output_required=False,
        pool=spec.pool,
    )
    def table(
        context: AssetExecutionContext, bus: BusResource, pyspark: PySparkResource
    ) -> Iterator[MaterializeResult[None]]:
        delivery_id = context.run.tags.get(DELIVERY_TAG)
        if delivery_id is None:
            raise Failure(BY_HAND, allow_retries=False)
        reservation = int(context.run.tags[RESERVATION_TAG])
        with bus.open() as opened:
            group = opened.group(name)
            try:
                held = group.lease(delivery_id, reservation=reservation, worker=context.run.run_id)
            except DeliveryError as gone:
                context.log.warning("Nothing to do: %s.", gone)
                return
            context.log.info(
                "Attempt %s of delivery %s: %s events.", held.attempt, held.id, held.size
            )
            yield work_off(lambda: pyspark.spark_session, work, group, held)

    return table


def _places(work: Work) -> dict[str, str]:
    """Where the tables lie."""
    return {f"table {name}".strip(): table.path for name, table in work.tables.items()}


def _formats(work: Work) -> set[str]:
    return {_KINDS.get(table.format, table.format) for table in work.tables.values()}
