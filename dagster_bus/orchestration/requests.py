"""A delivery as a request for the run that is to work it off."""

from collections.abc import Mapping
from datetime import datetime

from dagster import PartitionsDefinition, RunRequest, TimeWindowPartitionsDefinition

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import NORMAL_PRIORITY
from dagster_bus.core.window import Windows
from dagster_bus.errors import UsageError
from dagster_bus.orchestration.names import run_key, run_tags
from dagster_bus.orchestration.served import Served

PRIORITY_TAG = "dagster/priority"


def run_request(
    served: Served, delivery: Delivery, urgency: int | None, partition_key: str | None
) -> RunRequest:
    return RunRequest(
        run_key=run_key(delivery),
        job_name=served.job,
        partition_key=partition_key,
        tags={**priority_tags(urgency), **served.tags, **run_tags(delivery)},
    )


def priority_tags(urgency: int | None) -> Mapping[str, str]:
    """What the run queue is told of a batch whose most urgent event has this priority. Dagster
    takes the highest number first, and a run without a number for 0."""
    if urgency is None or urgency == NORMAL_PRIORITY:
        return {}
    return {PRIORITY_TAG: str(NORMAL_PRIORITY - urgency)}


def window_shown(delivery: Delivery, windows: Windows) -> str:
    """The partition of a group's own table. Dagster refuses one that is not there: a delivery that
    is older than the windows that the group has now keeps its own, and its run is shown under the
    one of the time it was made."""
    known = windows.find(delivery.window)
    return (known or windows.at(delivery.created_ms)).key


def require_usable(partitions: PartitionsDefinition | None, job: str) -> None:
    """Refuse, before anything is reserved, a job for which no batch has a partition."""
    if partitions is None:
        return
    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        raise UsageError(
            f"job {job} is partitioned by something else than time, so no partition of it can be "
            "told from a batch of events: start a job without partitions"
        )
    if partitions.end_offset < 1:
        raise UsageError(
            f"the partitions of job {job} leave out the time window that is still open, and new "
            "events are in that one: give their definition end_offset=1"
        )


def partition_at(partitions: PartitionsDefinition | None, at: datetime, job: str) -> str | None:
    """The partition that a moment belongs to."""
    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        return None
    if at < partitions.start:
        raise UsageError(
            f"there are events of {at:%Y-%m-%d %H:%M} UTC, and the partitions of job {job} begin "
            f"at {partitions.start:%Y-%m-%d %H:%M}: let them begin earlier"
        )
    return partitions.get_partition_key_for_timestamp(at.timestamp())
