"""The run of an operator who materializes partitions of a group's table, or backfills them.

It has no delivery: the windows that were chosen are made anew from the log, each of them
atomically, while the group goes on. Nothing is published again.
"""

from typing import Any

from dagster import AssetExecutionContext, Failure, MaterializeResult

from dagster_bus.core.groups import Group
from dagster_bus.core.window import Window
from dagster_bus.errors import BusError
from dagster_bus.spark.handover import OpenSession
from dagster_bus.spark.processing import Work
from dagster_bus.spark.recomputing import Recomputed, recompute

NO_WINDOW = (
    "This run has neither a delivery that the group's sensor has reserved, nor a partition. To "
    "make windows anew from the log, choose their partitions when you materialize; to have new "
    "events processed, turn the group's sensor on (Automation). Nothing was changed."
)
NO_TABLE = (
    "This group has no table whose windows could be replaced. To process old events again, launch "
    "the job `replay`. Nothing was changed."
)


def replace_windows(
    context: AssetExecutionContext,
    open_session: OpenSession,
    work: Work,
    group: Group,
) -> MaterializeResult[None]:
    """Make the windows of a run's partitions anew, oldest first. Raises Failure at the first that
    cannot be; those before it are done."""
    if not work.tables:
        raise Failure(NO_TABLE, allow_retries=False)
    if not (context.has_partition_key or context.has_partition_key_range):
        raise Failure(NO_WINDOW, allow_retries=False)
    keys = context.partition_keys
    metadata: dict[str, Any] = {}
    for key in keys:
        window = group.config.windows.find(key)
        assert window is not None, key  # noqa: S101  (the partitions are the windows)
        metadata = _metadata(_replaced(context, open_session, work, group, window), window)
        if len(keys) > 1:
            context.add_asset_metadata(metadata, partition_key=key)
    return MaterializeResult(metadata=metadata if len(keys) == 1 else None)


def _replaced(
    context: AssetExecutionContext,
    open_session: OpenSession,
    work: Work,
    group: Group,
    window: Window,
) -> Recomputed:
    run_id = context.run.run_id
    try:
        found = recompute(
            open_session, work, group, window, name=f"by-hand-{run_id}", worker=run_id
        )
    except Exception as error:
        told = str(error) if isinstance(error, BusError) else f"{type(error).__name__}: {error}"
        raise Failure(
            f"Window {window.key} was not replaced: {told}", allow_retries=False
        ) from error
    context.log.info(
        "Window %s was replaced: %s rows of %s events.", window.key, found.rows, found.events
    )
    return found


def _metadata(found: Recomputed, window: Window) -> dict[str, Any]:
    return {
        "window": window.key,
        "rows": found.rows,
        "events": found.events,
        "filtered": found.filtered,
        "still to come": found.to_come,
        "dead letters left out": found.dead,
        **{f"refused: {reason}": count for reason, count in found.refused.items()},
        **{f"dropped: {condition}": count for condition, count in found.dropped.items()},
    }
