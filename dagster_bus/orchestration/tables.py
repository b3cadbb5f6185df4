"""A group's table as a partitioned asset, and the run that works off one delivery.

The run leases the delivery that its sensor reserved, keeps the lease alive while Spark works, and
binds the outcome to the run's: settled when the table has the rows, failed with the error
otherwise.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
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

from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.failure import describe
from dagster_bus.core.groups import Group
from dagster_bus.core.lease import kept
from dagster_bus.core.window import FIRST_WINDOW, KEY_FORMAT
from dagster_bus.errors import BusError, DeliveryError, StoreError
from dagster_bus.orchestration.names import (
    DELIVERY_TAG,
    RESERVATION_TAG,
    definition_name,
    table_key,
    topic_key,
)
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.spark.processing import Result, Work, is_in_table, process
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
        metadata={"group": name, "pipeline": spec.pipeline, "table": work.table.path},
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
            if group.is_exhausted(held) and not is_in_table(work, held):
                raise _end_of(group.give_up(held))
            result = process(
                pyspark.spark_session, work, held, keeper.check, lambda: group.events(held)
            )
        except Failure:
            raise
        except DeliveryError as lost:
            raise Failure(f"Stopped: {lost}.", allow_retries=False) from lost
        except Exception as error:
            raise _failed(group, held, work, error) from error
        except BaseException:  # the run is cancelled, or Dagster ends: that is no failed attempt
            with suppress(BusError):
                group.hand_back(held)
            raise
        _settle(group, held, result)
    seconds = time.monotonic() - started
    return MaterializeResult(metadata=_metadata(group, held, result, seconds))


def _settle(group: Group, held: Delivery, result: Result) -> None:
    """Say that the work is done. The table has the rows: failing to say so is no failed attempt."""
    try:
        group.settle(held, filtered=result.filtered)
    except BusError as error:
        raise _left_to_the_next(error) from error


def _failed(group: Group, held: Delivery, work: Work, error: Exception) -> Failure:
    """Record a failed attempt, and put into words what comes next.

    It is recorded only after a look into the table, as it may be the last: an error may also come
    when the rows are committed, and what is in the table must not be dead-lettered."""
    cause = describe(error, attempt=held.attempt, worker=held.worker, at_ms=0)
    try:
        if is_in_table(work, held):
            return _left_to_the_next(error)
        return _end_of(group.fail(held, error))
    except Exception as unrecorded:  # noqa: BLE001  (the first error is the one to tell of)
        return Failure(
            f"{cause.type}: {cause.message}\nThis could not be recorded ({unrecorded}); "
            "the work is handed on when its lease ends.",
            allow_retries=False,
        )


def _left_to_the_next(error: Exception) -> Failure:
    return Failure(
        f"The table has the rows, and this run could not say so: {error}. "
        "The next run finds them there, and settles.",
        allow_retries=False,
    )


def _end_of(delivery: Delivery) -> Failure:
    """What a run that failed says of its delivery."""
    last = delivery.errors[-1]
    if delivery.outcome is Outcome.DEAD_LETTERED:
        where = f"the dead letters of {delivery.group}"
        then = f"No attempt is left: {delivery.size} events are in {where}"
    elif delivery.state is State.BLOCKED:
        then = f"No attempt is left: the group stops, until dagster-bus resume {delivery.group}"
    else:
        wait_s = (delivery.due_ms - last.at_ms) / 1000
        then = f"Attempt {last.attempt} failed; the next one follows in {wait_s:.1f} s"
    return Failure(f"{then}. {last.type}: {last.message}", allow_retries=False)


def _metadata(group: Group, held: Delivery, result: Result, seconds: float) -> dict[str, Any]:
    metadata = {
        "rows": result.rows,
        "events": held.size,
        "filtered": result.filtered,
        "files": result.files,
        "attempt": held.attempt,
        "ranges": [str(part) for part in held.ranges],
        "seconds": round(seconds, 3),
        "delivery": held.id,
        "already in the table": result.repeated,
    }
    with suppress(StoreError):  # the work is done, whatever becomes of this look
        metadata["lag"] = group.progress().lag
    return metadata
