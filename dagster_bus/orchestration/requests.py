"""A delivery as a request for the run that is to work it off."""

from dagster import RunRequest

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.window import HOURLY, Windows
from dagster_bus.orchestration.names import run_key, run_tags


def run_request(delivery: Delivery, windows: Windows = HOURLY) -> RunRequest:
    return RunRequest(
        run_key=run_key(delivery),
        partition_key=_partition(delivery, windows),
        tags=run_tags(delivery),
    )


def _partition(delivery: Delivery, windows: Windows) -> str:
    """Dagster refuses a partition that is not there. A delivery that is older than the windows that
    the group has now keeps its own; its run is shown under the one of the time it was made."""
    known = windows.find(delivery.window)
    return (known or windows.at(delivery.created_ms)).key
