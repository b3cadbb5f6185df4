"""What Dagster knows of the runs that deliveries were handed to."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property

from dagster import DagsterInstance, DagsterRunStatus, RunRecord, RunsFilter

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Group
from dagster_bus.core.recovering import Worker
from dagster_bus.orchestration.lots import in_lots
from dagster_bus.orchestration.names import DELIVERY_TAG, RESERVATION_TAG

AT_ONCE = 500
"""Runs that Dagster is asked for in one query."""


class RunBook:
    """The runs of a group's deliveries in flight. Dagster is asked when somebody wants to know, and
    then for all of them together."""

    def __init__(self, instance: DagsterInstance, group: Group) -> None:
        self._instance = instance
        self._group = group

    @cached_property
    def in_flight(self) -> list[Delivery]:
        return [
            *self._group.open_deliveries(State.RESERVED),
            *self._group.open_deliveries(State.RUNNING),
        ]

    def record_of(self, delivery: Delivery) -> RunRecord | None:
        """The run that works on a delivery, or is to: the newest, if there are several."""
        if delivery.state is State.RESERVED:
            return self._by_reservation.get((delivery.id, str(delivery.reservation)))
        return self._by_id.get(delivery.worker or "")

    @cached_property
    def _by_id(self) -> dict[str, RunRecord]:
        workers = [each.worker for each in self.in_flight if each.worker]
        leased = self._ask(workers, lambda some: RunsFilter(run_ids=[*some]))
        coming = self._by_reservation.values()  # some of them may have begun by now
        return {record.dagster_run.run_id: record for record in [*leased, *coming]}

    @cached_property
    def _by_reservation(self) -> dict[tuple[str, str], RunRecord]:
        ids = [each.id for each in self.in_flight if each.state is State.RESERVED]
        found: dict[tuple[str, str], RunRecord] = {}
        for record in self._ask(ids, lambda some: RunsFilter(tags={DELIVERY_TAG: [*some]})):
            tags = record.dagster_run.tags
            found.setdefault((tags[DELIVERY_TAG], tags.get(RESERVATION_TAG, "")), record)
        return found

    def _ask(
        self, names: Sequence[str], wanted: Callable[[Sequence[str]], RunsFilter]
    ) -> Iterator[RunRecord]:
        for lot in in_lots(names, AT_ONCE):
            yield from self._instance.get_run_records(wanted(lot))


def look_at_runs(book: RunBook, patience_ms: int) -> Callable[[Delivery], Worker]:
    """A look at a delivery's run: on its way, ended, or not to be counted on.

    A queue may be long, so a queued run is waited for. A run that left the queue is expected to
    lease its delivery within the patience; its process may have died without Dagster noticing."""

    def look(delivery: Delivery) -> Worker:
        record = book.record_of(delivery)
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
