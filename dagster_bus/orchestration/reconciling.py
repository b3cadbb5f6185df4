"""Runs that do not speak for themselves: their outcome settles what they were started for.

A job that knows nothing of deliveries neither leases nor settles. So each tick looks at the runs in
flight, and says for each what it would have said itself: that it has begun, that it is still at
work, how it ended. Nothing hangs on when a tick comes: the run's own record is what counts, also
when the daemon was away for longer than any lease. Only if that record is gone, the lease runs out.

A run that failed before it began has looked at no event. It is like one that never came: nothing is
said for it, and its reservation ends.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Group
from dagster_bus.core.recovering import Worker
from dagster_bus.errors import DeliveryError
from dagster_bus.orchestration.runs import RunBook, look_at_runs


class Fate(Enum):
    """What a run's record says of the work."""

    COMING = "coming"
    NEVER_BEGUN = "never begun"
    WORKING = "working"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


FATES = {
    DagsterRunStatus.STARTED: Fate.WORKING,
    DagsterRunStatus.CANCELING: Fate.WORKING,
    DagsterRunStatus.SUCCESS: Fate.DONE,
    DagsterRunStatus.FAILURE: Fate.FAILED,
    DagsterRunStatus.CANCELED: Fate.STOPPED,
}
"""Any other run is still on its way."""

UNHEARD = (Fate.COMING, Fate.NEVER_BEGUN)
"""Of runs for which there is nothing to say."""


class RunFailed(Exception):
    """The run failed."""


def reconcile(instance: DagsterInstance, group: Group, book: RunBook) -> None:
    """Say for the runs in flight what they do not say themselves."""
    for delivery in book.in_flight:
        record = book.record_of(delivery)
        if record is None:
            continue
        run, fate = record.dagster_run, fate_of(delivery, record)
        if fate in UNHEARD:
            continue
        try:
            _speak(instance, group, _held(group, delivery, run), run, fate)
        except DeliveryError:
            continue  # another tick has said it


def fate_of(delivery: Delivery, record: RunRecord) -> Fate:
    """What a delivery's run has come to. Dagster lets a run fail that it could not launch, or whose
    process did not come up in time: no step of it has begun."""
    fate = FATES.get(record.dagster_run.status, Fate.COMING)
    has_begun = record.start_time is not None or delivery.state is State.RUNNING
    return Fate.NEVER_BEGUN if fate is Fate.FAILED and not has_begun else fate


def look_at_outcomes(book: RunBook, patience_ms: int) -> Callable[[Delivery], Worker]:
    """What is left to be found out once the runs were reconciled: whether those that have not begun
    will come. One that ended just now is for the next tick, and did not end without a word."""
    look = look_at_runs(book, patience_ms)

    def look_again(delivery: Delivery) -> Worker:
        record = book.record_of(delivery)
        if record is not None and fate_of(delivery, record) not in UNHEARD:
            return Worker.COMING
        return look(delivery)

    return look_again


def _held(group: Group, delivery: Delivery, run: DagsterRun) -> Delivery:
    """The delivery with a lease that lasts, whenever the last tick was."""
    if delivery.state is State.RESERVED:
        return group.lease(delivery.id, reservation=delivery.reservation, worker=run.run_id)
    return group.keep(delivery)


def _speak(
    instance: DagsterInstance, group: Group, held: Delivery, run: DagsterRun, fate: Fate
) -> None:
    if fate is Fate.DONE:
        group.settle(held, filtered=group.unwanted(held))
    elif fate is Fate.FAILED:
        group.fail(held, error_of(instance, run.run_id))
    elif fate is Fate.STOPPED:
        group.hand_back(held)


def error_of(instance: DagsterInstance, run_id: str) -> BaseException:
    """Why a run failed: the first error that it tells of, or else what Dagster says."""
    said = "it does not say why"
    kinds = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
    for entry in instance.all_logs(run_id, of_type=kinds):
        event = entry.get_dagster_event()
        error = getattr(event.event_specific_data, "error", None)
        if error is not None:
            return _named(error)
        said = event.message or said
    return RunFailed(f"run {run_id} failed: {said}")


def _named(error: Any) -> BaseException:
    """An error of another process (Dagster's `SerializableErrorInfo`), as an exception of the name
    that it had there: rules for retries go by that."""
    while error.cause is not None:
        error = error.cause
    name = (error.cls_name or RunFailed.__name__).rsplit(".", 1)[-1]
    said = error.message.strip().removeprefix(f"{error.cls_name}: ")
    failed: BaseException = type(name, (RunFailed,), {})(said)
    failed.add_note("".join(error.stack))
    return failed
