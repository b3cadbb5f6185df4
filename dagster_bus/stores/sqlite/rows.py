"""Values of the core as rows of the embedded store, and back."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.event import event_from_tuple
from dagster_bus.core.store import DeadLetter, LetterState
from dagster_bus.core.topic import OffsetRange
from dagster_bus.stores.common import errors_from_text, errors_to_text

OFFSET_BITS = 40

NO_RANGES = "[]"


def position(partition_id: int, offset: int) -> int:
    """The key of an event: its partition, then its offset."""
    return partition_id << OFFSET_BITS | offset


def delivery_to_row(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "group_name": delivery.group,
        "window": delivery.window,
        "ranges": ranges_to_text(delivery.ranges),
        "size": delivery.size,
        "state": delivery.state.value,
        "outcome": delivery.outcome.value if delivery.outcome else None,
        "attempt": delivery.attempt,
        "reservation": delivery.reservation,
        "token": delivery.token,
        "due_ms": delivery.due_ms,
        "worker": delivery.worker,
        "errors": errors_to_text(delivery.errors),
        "created_ms": delivery.created_ms,
        "version": delivery.version,
        "exhausted": delivery.exhausted,
        "redriven": delivery.redriven,
        "behind": ranges_to_text(delivery.behind),
        "doubtful": delivery.doubtful,
        "looks": delivery.looks,
    }


def ranges_to_text(ranges: Iterable[OffsetRange]) -> str:
    if not ranges:
        return NO_RANGES
    return json.dumps([[part.topic, part.partition, part.first, part.last] for part in ranges])


def ranges_from_text(text: str) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(*part) for part in json.loads(text)) if text != NO_RANGES else ()


def delivery_from_row(row: Sequence[Any]) -> Delivery:
    id, group, window, ranges, _, state, outcome, attempt, reservation, token = row[:10]
    due_ms, worker, errors, created_ms, version = row[10:15]
    exhausted, redriven, behind, doubtful, looks = row[15:]
    return Delivery(
        id=id,
        group=group,
        window=window,
        ranges=ranges_from_text(ranges),
        state=State(state),
        outcome=Outcome(outcome) if outcome else None,
        attempt=attempt,
        reservation=reservation,
        token=token,
        due_ms=due_ms,
        worker=worker,
        errors=errors_from_text(errors),
        created_ms=created_ms,
        version=version,
        exhausted=bool(exhausted),
        redriven=bool(redriven),
        behind=ranges_from_text(behind),
        doubtful=bool(doubtful),
        looks=looks,
    )


def dead_letter_from_row(row: Sequence[Any]) -> DeadLetter:
    id, group, delivery, fingerprint, died_ms, errors, state, patched, *event = row
    return DeadLetter(
        id=id,
        group=group,
        delivery=delivery,
        event=event_from_tuple(event),
        errors=errors_from_text(errors),
        fingerprint=fingerprint,
        died_ms=died_ms,
        state=LetterState(state),
        patched=patched,
    )
