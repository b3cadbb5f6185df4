"""What Dagster knows of the runs that deliveries were handed to."""

from collections.abc import Callable
from datetime import UTC, datetime

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.recovering import Worker
from dagster_bus.orchestration.names import DELIVERY_TAG, RESERVATION_TAG


def look_at_runs(instance: DagsterInstance, patience_ms: int) -> Callable[[Delivery], Worker]:
    """A look at a delivery's run: on its way, ended, or not to be counted on.

    A queue may be long, so a queued run is waited for. A run that left the queue is expected to
    lease its delivery within the patience; its process may have died without Dagster noticing."""

    def look(delivery: Delivery) -> Worker:
        if delivery.state is State.RESERVED:
            tags = {DELIVERY_TAG: delivery.id, RESERVATION_TAG: str(delivery.reservation)}
            wanted = RunsFilter(tags=tags)
        else:
            wanted = RunsFilter(run_ids=[delivery.worker or ""])
        record = next(iter(instance.get_run_records(wanted, limit=1)), None)
        if record is None:
            return Worker.UNKNOWN
        age = datetime.now(UTC) - record.update_timestamp.replace(tzinfo=UTC)
        return judge(record.dagster_run.status, age.total_seconds() * 1000, patience_ms)

    return look


def judge(status: DagsterRunStatus, age_ms: float, patience_ms: int) -> Worker:
    """What a run's status, so many milliseconds old, says of its process."""
    if status in (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED):
        return Worker.GONE
    if status is DagsterRunStatus.QUEUED or age_ms < patience_ms:
        return Worker.COMING
    return Worker.UNKNOWN
