"""A run's own side of a delivery: its events, for jobs and assets that a group starts."""

from collections.abc import Iterator

from dagster import AssetExecutionContext, DagsterRun, Failure, OpExecutionContext

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Event
from dagster_bus.core.groups import Group
from dagster_bus.core.ranges import Place, covering
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.errors import EventRefused, ReservationLost, UnknownDelivery
from dagster_bus.opening import store_url
from dagster_bus.orchestration.names import DELIVERY_TAG, GROUP_TAG, RESERVATION_TAG
from dagster_bus.spark.frames import DataFrame, SparkSession, frame_of, read_events
from dagster_bus.spec.load import LoadedSpec

RunContext = OpExecutionContext | AssetExecutionContext

BY_HAND = (
    "No sensor of a group has started this run, so it has no events. Publish some, and let the "
    "sensor start it (Automation)."
)


class HandedOver:
    """What a run was started for. The run's outcome settles it: success, failure, or cancelled."""

    def __init__(self, loaded: LoadedSpec, group: Group, held: Delivery) -> None:
        self._loaded = loaded
        self._group = group
        self._held = held

    @property
    def id(self) -> str:
        return self._held.id

    @property
    def group(self) -> str:
        return self._group.config.name

    @property
    def attempt(self) -> int:
        return self._held.attempt

    def events(self) -> Iterator[Event]:
        """The events that the group wants, partition by partition, in order. May be asked again."""
        wanted = self._group.config.filter
        for event in self._group.events(self._held):
            if not wanted or wanted.matches(event.attributes, event.key):
                yield event

    def frame(self, spark: SparkSession) -> DataFrame:
        """The same as a DataFrame, with the columns that pipelines get."""
        columns = self._loaded.columns_of(self.group)
        if self._held.redriven:
            return frame_of(spark, self.events(), columns)
        wanted = self._group.config.filter
        return read_events(spark, store_url(self._loaded), self._held.ranges, wanted, columns)

    def refuse(self, event: Event, reason: str) -> None:
        """Give an event up, whatever becomes of the others: it goes to the dead letters."""
        at = covering([Place(event.topic, event.partition, event.offset)])
        self._held = self._group.keep(self._held)
        self._held = self._group.report(
            self._held, Report(refused=(Failed(at, EventRefused(reason)),))
        )


def hand_over(loaded: LoadedSpec, bus: Bus, run: DagsterRun) -> HandedOver:
    """What a run was started for. Fails the run if that is somebody else's by now."""
    if DELIVERY_TAG not in run.tags:
        raise Failure(BY_HAND, allow_retries=False)
    group = bus.group(run.tags[GROUP_TAG])
    return HandedOver(loaded, group, _held(group, run))


def _held(group: Group, run: DagsterRun) -> Delivery:
    """The run's lease. A tick may have taken it for the run meanwhile."""
    id, reservation = run.tags[DELIVERY_TAG], int(run.tags[RESERVATION_TAG])
    try:
        try:
            return group.lease(id, reservation=reservation, worker=run.run_id)
        except ReservationLost:
            held = group.delivery(id)
            if held.worker != run.run_id or held.state not in (State.RUNNING, State.DONE):
                raise
            return held
    except (ReservationLost, UnknownDelivery) as lost:
        raise Failure(f"Nothing to do: {lost}.", allow_retries=False) from lost
