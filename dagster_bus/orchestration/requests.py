"""A delivery as a request for the run that is to work it off."""

from dagster import RunRequest

from dagster_bus.core.delivery import Delivery
from dagster_bus.orchestration.names import run_key, run_tags


def run_request(delivery: Delivery) -> RunRequest:
    return RunRequest(
        run_key=run_key(delivery), partition_key=delivery.window, tags=run_tags(delivery)
    )
