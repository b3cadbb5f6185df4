"""Groups, workers and clocks in any order: nothing is lost, nothing ends in two ways.

Hypothesis chooses the steps: ticks that are lost, workers that vanish, sleep and come back late.
The model has a table that behaves as the real one does (see `spark/delta.py`): a worker that takes
a delivery over fences its predecessors off, and a commit is refused after a later fence. At the end
every group is drained, and every event is counted: in the table, or in the dead letters, never
both.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dagster_bus.core import groups
from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.errors import LeaseLost, ReservationLost
from dagster_bus.stores import open_store
from tests.conftest import STORES, new_store_url
from tests.support.builders import FakeClock, group_config, numbers, open_bus

EventAt = tuple[str, int, int]
GROUPS = ("readers", "others")
EXAMPLES = {"sqlite": 100, "mongo": 15}
"""A step takes a server longer than a file."""


def events_of(delivery: Delivery) -> set[EventAt]:
    return {
        (part.topic, part.partition, offset)
        for part in delivery.ranges
        for offset in range(part.first, part.last + 1)
    }


@dataclass
class Worker:
    """A run, and how far it has come. One that is never chosen again was killed there."""

    held: Delivery
    stage: str = "leased"


@dataclass
class Table:
    """What a table's log keeps: which deliveries it has, and the highest fence of each."""

    rows: dict[str, set[EventAt]] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)

    def fence(self, held: Delivery) -> bool:
        """False if a later worker was faster."""
        if held.id not in self.rows and self.fences.get(held.id, 0) <= held.token:
            self.fences[held.id] = held.token
        return self.fences.get(held.id, 0) <= held.token or held.id in self.rows

    def commit(self, held: Delivery) -> bool:
        if held.id not in self.rows and self.fences[held.id] == held.token:
            self.rows[held.id] = events_of(held)
        return held.id in self.rows

    def events(self) -> set[EventAt]:
        return set().union(*self.rows.values())


@dataclass
class Model:
    """What is true of one group beside what the store says."""

    reservations: list[Delivery] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    table: Table = field(default_factory=Table)

    def at(self, *stages: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.stage in stages]


def somebody(*stages: str) -> Callable[["Deliveries"], bool]:
    return lambda self: any(model.at(*stages) for model in self.models.values())


class Deliveries(RuleBasedStateMachine):
    kind = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.clock = FakeClock()
        self.store = open_store(new_store_url(self.kind, Path(self._folder.name)))
        configs = [group_config(name=name, max_events=7) for name in GROUPS]
        self.bus: Bus = open_bus(self.store, self.clock, *configs)
        self.models = {name: Model() for name in GROUPS}
        self.published: set[EventAt] = set()

    def teardown(self) -> None:
        try:
            for name in GROUPS:
                self._drain(name)
        finally:
            self.bus.close()
            self._folder.cleanup()

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        for at in self.bus.publish_many("orders", numbers(count)):
            self.published.add((at.topic, at.partition, at.offset))

    @rule(ms=st.sampled_from([1, 999, 1_000, 2_500, 5_000, 10_000, 3_600_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(name=st.sampled_from(GROUPS), looks=st.sampled_from(list(groups.Worker)))
    def tick(self, name: str, looks: groups.Worker) -> None:
        """What is known of the workers may be wrong: that must cost time only."""
        reserved = self.bus.group(name).reserve(look=lambda _: looks)
        assert len(reserved) <= 2
        self.models[name].reservations += reserved

    @precondition(lambda self: any(model.reservations for model in self.models.values()))
    @rule(data=st.data())
    def a_run_starts(self, data: st.DataObject) -> None:
        """Any that was ever asked for, once or again."""
        name, model = self._pick(data, lambda model: model.reservations)
        asked = data.draw(st.sampled_from(model.reservations))
        current = self.store.delivery(asked.id)
        valid = current.state is State.RESERVED and current.reservation == asked.reservation
        try:
            held = self.bus.group(name).lease(asked.id, reservation=asked.reservation, worker="run")
        except ReservationLost:
            assert not valid
            return
        assert valid
        assert held.attempt == len(held.errors) + 1
        earlier = [each.held.token for each in model.workers if each.held.id == held.id]
        assert all(held.token > token for token in earlier)
        model.workers.append(Worker(held))

    @precondition(somebody("leased"))
    @rule(data=st.data())
    def a_worker_begins(self, data: st.DataObject) -> None:
        """It opens the table, and fences. If no attempt is left, it only looks."""
        name, model, worker = self._worker(data, "leased")
        group = self.bus.group(name)
        if not model.table.fence(worker.held):
            worker.stage = "stopped"
        elif worker.held.id in model.table.rows:
            worker.stage = "committed"
        elif group.is_exhausted(worker.held):
            self._say(worker, lambda: group.give_up(worker.held), "stopped")
        else:
            worker.stage = "begun"

    @precondition(somebody("begun"))
    @rule(data=st.data(), how=st.sampled_from(["well", "badly", "told to stop"]))
    def a_worker_ends_its_pipeline(self, data: st.DataObject, how: str) -> None:
        name, _, worker = self._worker(data, "begun")
        group, held = self.bus.group(name), worker.held
        if how == "well":
            self._say(worker, lambda: group.renew(held), "checked")
        elif how == "badly":
            self._say(worker, lambda: group.fail(held, ValueError("bad")), "stopped")
        else:
            self._say(worker, lambda: group.hand_back(held), "stopped")

    @precondition(somebody("checked"))
    @rule(data=st.data())
    def a_worker_commits(self, data: st.DataObject) -> None:
        """It may have slept since it checked its lease: the table itself must refuse it then."""
        _, model, worker = self._worker(data, "checked")
        worker.stage = "committed" if model.table.commit(worker.held) else "stopped"

    @precondition(somebody("committed"))
    @rule(data=st.data())
    def a_worker_settles(self, data: st.DataObject) -> None:
        name, _, worker = self._worker(data, "committed")
        self._say(worker, lambda: self.bus.group(name).settle(worker.held), "stopped")

    @invariant()
    def every_event_is_somewhere(self) -> None:
        for name, model in self.models.items():
            progress = self.bus.group(name).progress()
            dead = self._dead(name)
            assert progress.published == len(self.published)
            assert progress.tally.dead_lettered == len(dead)
            assert progress.tally.processed <= len(model.table.events())
            assert not dead & model.table.events(), "an event ends in one way"
            inside = progress.reserved + progress.running + progress.waiting
            assert 0 <= inside <= progress.lag

    @invariant()
    def no_cursor_passes_an_unsettled_event(self) -> None:
        for name, model in self.models.items():
            ended = model.table.events() | self._dead(name)
            for at, cursor in self.bus.group(name).progress().cursors.items():
                before = {(at.topic, at.partition, offset) for offset in range(1, cursor + 1)}
                assert before <= ended

    def _say(self, worker: Worker, step: Callable[[], object], then: str) -> None:
        """A worker speaks to the bus, which believes it if, and only if, it holds the lease."""
        current = self.store.delivery(worker.held.id)
        holds = (
            current.state is State.RUNNING
            and current.token == worker.held.token
            and self.clock() < current.due_ms
        )
        try:
            step()
        except LeaseLost:
            assert not holds
            worker.stage = "stopped"
        else:
            assert holds
            worker.stage = then

    def _drain(self, name: str) -> None:
        """Let everything time out, and work off what is left: all of it must come."""
        group, model = self.bus.group(name), self.models[name]
        for _ in range(500):
            self.clock.advance(3_600_000)
            for delivery in group.reserve():
                held = group.lease(delivery.id, reservation=delivery.reservation, worker="last")
                assert model.table.fence(held)
                if group.is_exhausted(held) and held.id not in model.table.rows:
                    group.give_up(held)
                else:
                    assert model.table.commit(held)
                    group.settle(held)
            if group.progress().lag == 0:
                break
        progress = group.progress()
        assert progress.tally.processed == len(model.table.events())
        assert model.table.events() | self._dead(name) == self.published
        for (_, partition), cursor in progress.cursors.items():
            assert cursor == sum(1 for event in self.published if event[1] == partition)

    def _dead(self, name: str) -> set[EventAt]:
        letters = self.bus.dead_letters(name, limit=1_000_000)
        found = {(each.event.topic, each.event.partition, each.event.offset) for each in letters}
        assert len(found) == len(letters), "an event dies once"
        assert all(len(letter.errors) == 3 for letter in letters)
        return found

    def _pick(self, data: st.DataObject, has: Callable[[Model], object]) -> tuple[str, Model]:
        name = data.draw(st.sampled_from([name for name in GROUPS if has(self.models[name])]))
        return name, self.models[name]

    def _worker(self, data: st.DataObject, stage: str) -> tuple[str, Model, Worker]:
        name, model = self._pick(data, lambda model: model.at(stage))
        return name, model, data.draw(st.sampled_from(model.at(stage)))


@pytest.mark.parametrize("kind", STORES)
def test_nothing_is_lost_whatever_happens_in_whatever_order(kind: str) -> None:
    machine = type("Machine", (Deliveries,), {"kind": kind})
    examples = EXAMPLES[kind]
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=50)
    )
