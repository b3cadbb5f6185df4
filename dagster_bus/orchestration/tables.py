"""A group's table as a partitioned asset, and the run that works off one delivery.

The run leases the delivery that its sensor reserved, keeps the lease alive while Spark works, and
binds the outcome to the run's: settled when the table has the rows, failed with the error
otherwise.
"""

import time
from collections.abc import Iterator
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetsDefinition,
    Failure,
    HourlyPartitionsDefinition,
    MaterializeResult,
    asset,
)
from dagster_pyspark import PySparkResource

from dagster_bus.core.delivery import Delivery, Outcome
from dagster_bus.core.groups import Group
from dagster_bus.core.lease import kept
from dagster_bus.core.window import FIRST_WINDOW, KEY_FORMAT
from dagster_bus.errors import BusError, DeliveryError
from dagster_bus.orchestration.names import (
    DELIVERY_TAG,
    RESERVATION_TAG,
    definition_name,
    table_key,
    topic_key,
)
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.spark.processing import Result, Work, process
from dagster_bus.spec.load import LoadedSpec

BY_HAND = (
    "This table is filled by its sensor, and a run needs a delivery that the sensor has reserved. "
    "Turn the sensor on (Automation) and publish events; nothing was changed."
)


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
        kinds={"spark", "deltalake"},
        metadata={"group": name, "pipeline": spec.pipeline, "table": work.table},
        output_required=False,
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
            yield _work_off(pyspark, work, group, held)

    return table


def _work_off(
    pyspark: PySparkResource, work: Work, group: Group, held: Delivery
) -> MaterializeResult[None]:
    started = time.monotonic()
    with kept(group, held) as keeper:
        try:
            result = process(pyspark.spark_session, work, held, keeper.check)
            group.settle(held, filtered=result.filtered)
        except DeliveryError as lost:
            raise Failure(f"Stopped: {lost}.", allow_retries=False) from lost
        except Exception as error:
            raise _failure(group.fail(held, error), error) from error
        except BaseException as stopped:  # the run was cancelled
            group.fail(held, stopped)
            raise
    return MaterializeResult(metadata=_metadata(group, held, result, time.monotonic() - started))


def _failure(failed: Delivery, error: BaseException) -> Failure:
    """What the run says of its end, and what comes next."""
    if failed.outcome is Outcome.DEAD_LETTERED:
        then = f"No attempt is left: {failed.size} events are in the dead letters of {failed.group}"
    else:
        last = failed.errors[-1]
        then = (
            f"Attempt {last.attempt} failed; the next one follows in "
            f"{(failed.due_ms - last.at_ms) / 1000:.1f} s"
        )
    cause = str(error) if isinstance(error, BusError) else f"{type(error).__name__}: {error}"
    return Failure(f"{then}. {cause}", allow_retries=False)


def _metadata(group: Group, held: Delivery, result: Result, seconds: float) -> dict[str, Any]:
    return {
        "rows": result.rows,
        "events": held.size,
        "filtered": result.filtered,
        "files": result.files,
        "attempt": held.attempt,
        "ranges": [str(part) for part in held.ranges],
        "lag": group.progress().lag,
        "seconds": round(seconds, 3),
        "delivery": held.id,
        "already in the table": result.repeated,
    }
