"""A worker that goes through the events of its delivery, and remembers what it has not told yet."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Event
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.ranges import Place, covering
from dagster_bus.core.reporting import Failed, Report
from tests.simulation.log import place_of


@dataclass(eq=False)
class Worker:
    """What it holds, what it has not begun, and how that which it has begun went."""

    name: str
    group: str
    host: int
    config: GroupConfig
    held: Delivery
    queue: list[Event]
    settled: dict[str, list[Place]] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)
    refused: list[Failed] = field(default_factory=list)
    own: set[Place] = field(default_factory=set)
    """What it has dealt with since it has its lease, told or not."""

    def settle(self, event: Event, how: str) -> None:
        self.settled.setdefault(how, []).append(place_of(event))
        self.own.add(place_of(event))

    def fail(self, events: list[Event], error: Exception, *, refuse: bool) -> None:
        """Events fail together, and those that must not overtake them are left where they are."""
        behind = [event for event in self.queue if self._comes_after(event, events)]
        self.queue = [event for event in self.queue if event not in behind]
        failed = Failed(
            covering(map(place_of, events)), error, behind=covering(map(place_of, behind))
        )
        (self.refused if refuse else self.failed).append(failed)

    def wants(self, event: Event) -> bool:
        return not self.config.filter or self.config.filter.matches(event.attributes, event.key)

    def report(self, *, returns: bool = False) -> Report:
        """All that is to be told now; it may give back what was not begun."""

        def places(how: str) -> Iterable[Place]:
            return self.settled.get(how, [])

        return Report(
            processed=covering(places("processed")),
            filtered=covering(places("filtered")),
            expired=covering(places("expired")),
            failed=tuple(self.failed),
            refused=tuple(self.refused),
            returned=covering(map(place_of, self.queue)) if returns else (),
        )

    def told(self, held: Delivery) -> None:
        self.held = held
        self.settled.clear()
        self.failed.clear()
        self.refused.clear()

    def _comes_after(self, event: Event, failed: list[Event]) -> bool:
        if self.config.order is Order.NONE:
            return False
        if self.config.order is Order.PARTITION:
            return any(each[2:4] == event[2:4] for each in failed)
        return event.key is not None and any(
            (*each[2:4], each.key) == (*event[2:4], event.key) for each in failed
        )
