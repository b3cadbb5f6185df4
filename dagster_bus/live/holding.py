"""What a worker of a group holds: deliveries, whose events are handled, and reported in the end.

Every event that is taken is reported: as processed, not wanted, expired, failed, or handed back. If
the process dies before, others find the lease without its holder, and deliver the event again.
"""

import logging
import time
from collections.abc import Iterable, Iterator

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Event
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.lease import BEATS_PER_LEASE
from dagster_bus.core.ranges import place_of
from dagster_bus.core.reporting import Report
from dagster_bus.errors import BusError, StoreError
from dagster_bus.live.crew import Handler
from dagster_bus.live.desk import Desk
from dagster_bus.live.jobs import Job
from dagster_bus.live.lanes import lanes_by
from dagster_bus.live.ledger import Ledger
from dagster_bus.live.office import Office
from dagster_bus.live.taking import Taking, sift
from dagster_bus.live.telling import Teller

LOGGER = logging.getLogger("dagster_bus")


class Holder(Desk):
    """The desk of a worker, apart from how it comes to work."""

    def __init__(
        self,
        teller: Teller,
        handler: Handler,
        config: GroupConfig,
        taking: Taking,
        office: Office,
    ) -> None:
        super().__init__(teller, handler, lanes_by(config.order), office)
        self._config = config
        self._clock = teller.shared.clock
        self._taking = taking
        self._group = taking.group
        self._ledgers: dict[str, Ledger] = {}
        self._renew_at: dict[str, float] = {}
        self._beat_s = config.lease_ms / 1_000 / BEATS_PER_LEASE
        self._pause_until = 0.0
        self._look_at = 0.0
        """When to look for work, unless events come."""

    def _begin_work(self, held: Delivery, events: list[Event], now_s: float) -> None:
        name = f"{held.id}/{held.token}"  # the same work may come back under another lease
        ledger = Ledger(held)
        sifted = sift(held, events, [self._config.filter, self._options.filter], self._clock())
        ledger.left_out(sifted.filtered, sifted.expired, now_s)
        self._ledgers[name] = ledger
        self._renew_at[name] = now_s + self._beat_s
        self._lanes.put(_jobs(held, name, sifted.wanted))

    def _succeeded(self, job: Job, now_s: float) -> None:
        if ledger := self._ledgers.get(job.delivery or ""):
            ledger.processed(job, now_s)

    def _failed(self, job: Job, error: BaseException, now_s: float) -> None:
        behind = self._lanes.take_behind(job)
        if ledger := self._ledgers.get(job.delivery or ""):
            ledger.failed(job, error, behind, now_s)

    def _returned(self, jobs: Iterable[Job], now_s: float) -> None:
        for job in jobs:
            if ledger := self._ledgers.get(job.delivery or ""):
                ledger.returned([job], now_s)

    def _settle(self, now_s: float) -> None:
        if now_s < self._pause_until:
            return
        for name, ledger in [*self._ledgers.items()]:
            try:
                if ledger.is_due(now_s) or (self._tells_at_once and ledger.has_news):
                    self._report(name, ledger)
                elif now_s >= self._renew_at[name]:
                    self._taking.outlook.forget()
                    self._group.renew(ledger.held)
                    self._renew_at[name] = time.monotonic() + self._beat_s
            except StoreError as error:
                LOGGER.warning("group %s cannot report now: %s", self._config.name, error)
                self._pause_until = now_s + self._beat_s
            except BusError as lost:
                self._lose(name, lost)

    @property
    def _tells_at_once(self) -> bool:
        """Whether nothing can be said together with the next take: there is none, or it has to
        wait until this is said."""
        return self._is_stopping or (self._config.order is not Order.NONE and not self._unfinished)

    def _report(self, name: str, ledger: Ledger) -> None:
        report = ledger.report()
        self._taking.outlook.forget()
        self._reported(name, report, self._group.report(ledger.held, report))
        if report.failed or name not in self._ledgers:
            self._look_at = 0.0  # to learn when they are to be tried again, or that nothing is left

    def _reported(self, name: str, report: Report, left: Delivery) -> None:
        """What was said of a delivery was written."""
        ledger = self._ledgers[name]
        for part in report.processed:
            self._counters.add("acked", part.topic, len(part))
        if left.state is State.RUNNING:
            ledger.reported(left)
        else:
            del self._ledgers[name], self._renew_at[name]

    def _lose(self, name: str, lost: BusError) -> None:
        """Somebody else does this work now."""
        LOGGER.warning("group %s: %s", self._config.name, lost)
        self._taking.outlook.forget()
        self._take_in(self._crew.take_back())
        self._lanes.drop(name)
        del self._ledgers[name], self._renew_at[name]
        self._look_at = 0.0

    @property
    def _is_settled(self) -> bool:
        return not self._ledgers


def _jobs(held: Delivery, name: str, events: Iterable[Event]) -> Iterator[Job]:
    for event in events:
        place = place_of(event)
        yield Job(event, place, 1 if held.is_behind(place) else held.attempt, name)
