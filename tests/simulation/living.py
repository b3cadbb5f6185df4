"""Workers that stay: they report, and take the next events, in one change, several at a time.

They go the short way of `live.worker` with its own parts, but for threads and handlers: what a
worker believes of its group may be old, and then the store must refuse it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from dagster_bus.core.clock import Clock
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.stepping import Step, Told
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import LeaseLost, StaleState
from dagster_bus.live.shelf import Shelf
from dagster_bus.live.taking import Taking
from tests.simulation.intents import Stride
from tests.simulation.referee import Referee
from tests.simulation.worker import Worker


@dataclass(eq=False)
class Staying:
    """A worker that comes for more, and all that it holds."""

    name: str
    group: str
    host: int
    taking: Taking
    holds: list[Worker] = field(default_factory=list)

    def complete(self) -> list[Worker]:
        """What it can report in its next step: all is done, and nothing has failed."""
        return [
            each
            for each in self.holds
            if not each.queue and not each.failed and not each.refused and each.settled
        ]


@dataclass(frozen=True)
class Wish:
    """A step that is to be written, together with those of others."""

    staying: Staying
    told: list[Worker]
    step: Step
    intent: Stride


class Living:
    """All of them, on one store."""

    def __init__(self, store: Store, referees: dict[str, Referee]) -> None:
        self._store = store
        self._referees = referees
        self._shelf = Shelf(store)
        self.all: list[Staying] = []

    def come(self, name: str, config: GroupConfig, host: int, clock: Clock) -> Staying:
        taking = Taking(config, self._store, clock, name, self._shelf)
        self.all.append(Staying(name, config.name, host, taking))
        return self.all[-1]

    def forget(self, worker: Worker) -> None:
        """A worker is over, or has spoken for itself."""
        for staying in self.all:
            if worker in staying.holds:
                staying.taking.outlook.forget()

    def leave(self, worker: Worker) -> None:
        self.forget(worker)
        for staying in self.all:
            if worker in staying.holds:
                staying.holds.remove(worker)

    def wish(self, staying: Staying, now_ms: int, most: int) -> Wish | None:
        """What one of them would write now; nothing, if it has to go the long way."""
        told = staying.complete()
        try:
            found = staying.taking.step(
                [Told(each.held, each.report()) for each in told], most, self._ends
            )
        except LeaseLost:
            return None
        if found is None or found[0].taken is None:
            return None
        step = found[0]
        spoken = tuple((each.held, each.report()) for each in told)
        return Wish(staying, told, step, Stride(now_ms, spoken, staying.name))

    def write(self, wishes: list[Wish], let_others_in: Callable[[], None]) -> list[Wish]:
        """Write them together; returns those that were written."""
        let_others_in()
        changes = [wish.step.change for wish in wishes if wish.step.change]
        written = []
        for wish, refused in zip(wishes, self._store.commit_all(changes), strict=True):
            outlook = wish.staying.taking.outlook
            if refused is None:
                assert wish.step.change
                self._referees[wish.staying.group].committed(wish.step.change, wish.intent)
                outlook.did(wish.step)
                written.append(wish)
            else:
                assert isinstance(refused, StaleState), refused
                outlook.forget()
        return written

    def _ends(self) -> dict[TopicPartition, int]:
        topics = sorted({topic for each in self._referees.values() for topic in each.config.topics})
        return {at: each.end for at, each in self._store.bounds(topics).items()}
