"""What Dagster knows of the runs that deliveries were handed to."""

from collections.abc import Callable

from dagster import DagsterInstance, RunsFilter

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Worker
from dagster_bus.orchestration.names import DELIVERY_TAG, RESERVATION_TAG


def look_at_runs(instance: DagsterInstance) -> Callable[[Delivery], Worker]:
    """A look at a delivery's run: on its way or at work, ended, or never heard of."""

    def look(delivery: Delivery) -> Worker:
        if delivery.state is State.RESERVED:
            tags = {DELIVERY_TAG: delivery.id, RESERVATION_TAG: str(delivery.reservation)}
            run = next(iter(instance.get_runs(RunsFilter(tags=tags), limit=1)), None)
        else:
            run = instance.get_run_by_id(delivery.worker) if delivery.worker else None
        if run is None:
            return Worker.UNKNOWN
        return Worker.GONE if run.is_finished else Worker.COMING

    return look
