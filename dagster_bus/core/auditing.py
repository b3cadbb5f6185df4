"""An account of what the bus decided: who published what, and what became of deliveries.

Each entry is appended to the audit topic in the transaction of what it tells of, so that there is
none without the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from dagster_bus.core.clock import Clock
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Batch, Published
from dagster_bus.core.mirroring import in_short
from dagster_bus.core.store import Burial, Change, Store
from dagster_bus.core.system import AUDIT, is_system_topic, told
from dagster_bus.errors import BusError

Entry = dict[str, Any]


def audited(store: Store, clock: Clock) -> Store:
    """The same store; what is written to it is told on the audit topic."""
    return cast(Store, _Audited(store, clock))


class _Audited:
    """Passes everything on, and writes along."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, batches: Sequence[Batch], now_ms: int) -> list[list[Published]]:
        entries = [_published(batch) for batch in batches if not is_system_topic(batch.topic)]
        if not entries:
            return self._store.append(batches, now_ms)
        return self._store.append([*batches, told(AUDIT, entries, now_ms)], now_ms)[:-1]

    def commit(self, change: Change) -> None:
        self._store.commit(self._told(change))

    def commit_all(self, changes: Sequence[Change]) -> list[BusError | None]:
        return self._store.commit_all([self._told(change) for change in changes])

    def _told(self, change: Change) -> Change:
        entries = [*decisions(change)]
        if not entries:
            return change
        now_ms = self._clock()
        return replace(change, told=(*change.told, told(AUDIT, entries, now_ms)), told_ms=now_ms)


def _published(batch: Batch) -> Entry:
    """Repeated events count here, too: which ones were is found out by the store."""
    sources = {source for source in batch.sources if source is not None}
    return {
        "action": "publish",
        "topic": batch.topic,
        "events": batch.length,
        "first_id": batch.ids[0],
        "last_id": batch.ids[-1],
        "sources": sorted(sources),
    }


def decisions(change: Change) -> Iterator[Entry]:
    """What a change means for a group's events, one entry for each decision. What only passes the
    time, as a reservation or a heartbeat, is none."""
    group = {"group": change.group}
    if change.shifts:
        moved = [{**at._asdict(), "offset": to} for at, to in change.frontiers.items()]
        yield {"action": "move", **group, "to": moved}
    if change.done.settled and change.deliveries:
        yield {
            "action": "ack",
            **group,
            "delivery": change.deliveries[0].id,
            "processed": change.done.processed,
            "filtered": change.done.filtered,
            "expired": change.done.expired,
        }
    yield from (_published(each) for each in change.told if not is_system_topic(each.topic))
    for each in change.deliveries:
        if each.state is State.WAITING and not change.frontiers:  # else new events only join it
            yield {"action": "redelivery", **group, **_story(each), "not_before_ms": each.due_ms}
        elif each.state is State.BLOCKED:
            yield {"action": "block", **group, **_story(each)}
    for burial in change.burials:
        yield {"action": "dead-letter", **group, **_buried(burial)}
    if change.redrives:
        yield {"action": "redrive", **group, "letters": [each.letter for each in change.redrives]}


def _story(delivery: Delivery) -> Entry:
    return {
        "delivery": delivery.id,
        "ranges": [str(part) for part in delivery.ranges],
        "failed_attempts": len(delivery.errors),
        "error": in_short(delivery.errors[-1]) if delivery.errors else None,
    }


def _buried(burial: Burial) -> Entry:
    return {**_story(burial.delivery), "fingerprint": burial.fingerprint}
