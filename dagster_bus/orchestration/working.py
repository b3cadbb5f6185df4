"""The run that works off one delivery.

It keeps the lease alive while Spark works, and binds the outcome to the run's: settled when the
tables have the rows, failed with the error otherwise. The last run of a delivery without attempts
left looks whether a vanished worker has done the work; if not, it finds out which events fail
alone, or gives up.
"""

import time
from contextlib import suppress
from typing import Any

from dagster import Failure, MaterializeResult

from dagster_bus.core.delivery import Delivery, OnExhausted, Outcome, State
from dagster_bus.core.failure import describe, is_wordy, message_of
from dagster_bus.core.groups import Group
from dagster_bus.core.isolating import Findings
from dagster_bus.core.lease import Keeper, kept
from dagster_bus.errors import BusError, DeliveryError, SparkUnavailable, StoreError
from dagster_bus.orchestration.columns import table_schema
from dagster_bus.spark.handover import OpenSession
from dagster_bus.spark.isolation import is_worth_isolating, set_poison_apart
from dagster_bus.spark.processing import Result, Work, is_in_table, process


class NotTried(Failure):
    """The work could not even begin, and no work can for now."""


def work_off(
    open_session: OpenSession, work: Work, group: Group, held: Delivery
) -> MaterializeResult[None]:
    """Do the work of a delivery, and say so. Raises Failure if it is not done."""
    started = time.monotonic()
    with kept(group, held) as keeper:
        try:
            found = _isolated(open_session, work, group, keeper)
            result = Result()
            if keeper.held.state is not State.DONE:
                result = process(open_session, work, keeper)
        except Failure:
            raise
        except SparkUnavailable as error:  # no event is to blame, and no attempt was made
            raise _not_tried(group, held, error) from error
        except DeliveryError as lost:
            raise Failure(f"Stopped: {lost}.", allow_retries=False) from lost
        except Exception as error:  # noqa: BLE001  (the failure tells what it was)
            # Java's errors fill pages, and the failure has all that they tell.
            raise _failed(group, held, work, error) from (None if is_wordy(error) else error)
        except BaseException:  # the run is cancelled, or Dagster ends: that is no failed attempt
            with suppress(BusError):
                group.hand_back(held)
            raise
        if keeper.held.state is not State.DONE:
            _settle(group, work, held, result)
    seconds = time.monotonic() - started
    return MaterializeResult(metadata=_metadata(group, work, held, result, found, seconds))


def _isolated(open_session: OpenSession, work: Work, group: Group, keeper: Keeper) -> Findings:
    """Deal with a delivery that may not be tried any more, unless its rows are there."""
    held = keeper.held
    if not group.is_exhausted(held) or is_in_table(work, held):
        return Findings()
    if not _isolates(group, held):
        raise _end_of(group.give_up(held))
    return set_poison_apart(open_session, work, keeper)


def _isolates(group: Group, held: Delivery) -> bool:
    """Whether this run is to find the bad events, and to do the others."""
    isolates = group.config.on_exhausted is OnExhausted.ISOLATE
    return held.exhausted and isolates and is_worth_isolating(held)


def _settle(group: Group, work: Work, held: Delivery, result: Result) -> None:
    """Say that the work is done, and publish what came of it. The table has the rows: failing to
    say so is no failed attempt."""
    try:
        group.settle(held, filtered=result.filtered, publishing=result.outgoing)
    except BusError as error:
        raise _left_to_the_next(work, error) from error


def _failed(group: Group, held: Delivery, work: Work, error: Exception) -> Failure:
    """Record a failed attempt, and put into words what comes next.

    It is recorded only after a look into the table, as it may be the last: an error may also come
    when the rows are committed, and what is in the table must not be dead-lettered."""
    cause = describe(error, attempt=held.attempt, worker=held.worker, at_ms=0)
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    try:
        if is_in_table(work, held):
            return _left_to_the_next(work, error)
        if _isolates(group, held):  # what is left was not to blame so far
            group.hand_back(held, looked=True)
            then = "What did not fail alone could not be done either, and the next run tries again"
            return Failure(f"{then}. {cause.type}: {cause.message}{notes}", allow_retries=False)
        return _end_of(group.fail(held, error), notes)
    except Exception as unrecorded:  # noqa: BLE001  (the first error is the one to tell of)
        return Failure(
            f"{cause.type}: {cause.message}{notes}\nThis could not be recorded ({unrecorded}); "
            "the work is handed on when its lease ends.",
            allow_retries=False,
        )


def _not_tried(group: Group, held: Delivery, error: SparkUnavailable) -> NotTried:
    """Hand the work back for as long as a run is waited for that does not come: what keeps Spark
    from starting seldom ends within a moment."""
    wait_ms = group.config.launch_timeout_ms
    try:
        group.hand_back(held, wait_ms=wait_ms)
    except BusError as unrecorded:
        then = f"This could not be recorded ({unrecorded}); the work is handed on with its lease"
    else:
        then = f"No attempt is counted, and the next run follows in {wait_ms / 1000:.0f} s"
    return NotTried(f"Not tried: {error}. {then}.", allow_retries=False)


def _left_to_the_next(work: Work, error: Exception) -> Failure:
    if not work.tables:
        return Failure(
            f"The work was done, and this run could not say so: {error}. Nothing was published; "
            "the next run does it again.",
            allow_retries=False,
        )
    return Failure(
        f"The table has the rows, and this run could not say so: {message_of(error)}. "
        "The next run finds them there, and settles.",
        allow_retries=False,
    )


def _end_of(delivery: Delivery, notes: str = "") -> Failure:
    """What a run that failed says of its delivery."""
    last = delivery.errors[-1]
    if delivery.outcome is Outcome.DEAD_LETTERED:
        where = f"the dead letters of {delivery.group}"
        then = f"No attempt is left: {delivery.size} events are in {where}"
    elif delivery.state is State.BLOCKED:
        then = f"No attempt is left: the group stops, until dagster-bus resume {delivery.group}"
    elif delivery.exhausted:
        then = "No attempt is left: the next run finds out which events fail alone"
    else:
        wait_s = (delivery.due_ms - last.at_ms) / 1000
        then = f"Attempt {last.attempt} failed; the next one follows in {wait_s:.1f} s"
    return Failure(f"{then}. {last.type}: {last.message}{notes}", allow_retries=False)


def _metadata(
    group: Group,
    work: Work,
    held: Delivery,
    result: Result,
    found: Findings,
    seconds: float,
) -> dict[str, Any]:
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
        **({"published": result.published} if work.publish else {}),
        **{f"refused: {reason}": count for reason, count in result.refused.items()},
        **{f"dropped: {condition}": count for condition, count in result.dropped.items()},
    }
    if result.columns:
        metadata["dagster/column_schema"] = table_schema(result.columns)
    if found.trials:
        metadata |= {"failed alone": len(found.poison), "trials": found.trials}
    with suppress(StoreError):  # the work is done, whatever becomes of this look
        metadata["lag"] = group.progress().lag
    return metadata
