"""Groups, workers and clocks in any order: nothing is lost, nothing ends in two ways.

Hypothesis chooses the steps: ticks that are lost, workers that vanish, sleep and come back late.
The model has a table that behaves as the real one does (see `spark/tables/delta.py`): a worker that
takes a delivery over fences its predecessors off, and a commit is refused after a later fence. At
the end every group is drained, and every event is counted: in the table, or in the dead letters,
never both.

A second machine drives workers that go through their events one by one and report in parts, in
groups of each order, with dead letters that are sent back. There the referee of the simulation
judges every change that is written, on whatever store.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dagster_bus.core import recovering
from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, OnExhausted, State
from dagster_bus.core.event import Message
from dagster_bus.core.group_config import Order
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import Chosen, DeadLetters
from dagster_bus.core.reporting import Report, all_of
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import LetterQuery, Store
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import LeaseLost, ReservationLost
from dagster_bus.stores import open_store
from tests.conftest import STORES, new_store_url
from tests.simulation import intents
from tests.simulation.log import Log, place_of
from tests.simulation.racing import Raced
from tests.simulation.referee import Referee
from tests.simulation.worker import Worker as Careful
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

    @rule(name=st.sampled_from(GROUPS), looks=st.sampled_from(list(recovering.Worker)))
    def tick(self, name: str, looks: recovering.Worker) -> None:
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
        letters = self.bus.dead_letters(name).list(limit=1_000_000)
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


KEYS = st.sampled_from(["a", "b", None])


class Parts(RuleBasedStateMachine):
    """One group whose workers report on each event by itself."""

    kind = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.clock = FakeClock()
        self.store = open_store(new_store_url(self.kind, Path(self._folder.name)))
        self.log = Log(self.store, [TopicPartition("orders", 0), TopicPartition("orders", 1)])
        self.reservations: list[Delivery] = []
        self.workers: list[Careful] = []

    @initialize(
        order=st.sampled_from(Order),
        on_exhausted=st.sampled_from(OnExhausted),
        attempts=st.integers(1, 3),
    )
    def the_group_is_declared(self, order: Order, on_exhausted: OnExhausted, attempts: int) -> None:
        retry = RetryPolicy(max_attempts=attempts, base_delay_ms=1_000, jitter="none")
        self.config = group_config(
            order=order, on_exhausted=on_exhausted, retry=retry, max_events=7
        )
        self.bus = open_bus(self.store, self.clock, self.config)
        self.referee = Referee(self.config, self.store, self.log, Counter(), alone=True)

    def teardown(self) -> None:
        try:
            if hasattr(self, "referee"):
                self._drain()
        finally:
            self.store.close()
            self._folder.cleanup()

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6))
    def publish(self, keys: list[str | None]) -> None:
        self.log.note(self.bus.publish_many("orders", [Message({}, key=key) for key in keys]))

    @rule(ms=st.sampled_from([1, 999, 1_000, 2_500, 5_000, 10_000, 3_600_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(looks=st.sampled_from(recovering.Worker), most=st.sampled_from([None, 0, 1]))
    def tick(self, looks: recovering.Worker, most: int | None) -> None:
        self.reservations += self._reserve(lambda _: looks, most)

    @precondition(lambda self: self.reservations)
    @rule(data=st.data())
    def a_run_starts(self, data: st.DataObject) -> None:
        """Any that was ever asked for, once or again."""
        asked = data.draw(st.sampled_from(self.reservations))
        worker = self._begin(asked)
        if worker:
            self.workers.append(worker)

    @rule(keys=st.lists(KEYS, max_size=9))
    def events_come_and_are_taken(self, keys: list[str | None]) -> None:
        """The usual way, in one step: the dice get further then."""
        if keys:
            self.publish(keys)
        for delivery in self._reserve(recovering.nothing_known, None):
            worker = self._begin(delivery)
            assert worker is not None
            self.workers.append(worker)

    @precondition(lambda self: any(worker.queue for worker in self.workers))
    @rule(
        data=st.data(),
        count=st.integers(1, 3),
        how=st.sampled_from(["processed", "filtered", "expired", "failed", "refused"]),
        reports=st.booleans(),
    )
    def a_worker_does_some_events(
        self, data: st.DataObject, count: int, how: str, reports: bool
    ) -> None:
        """They share their fate; what must not overtake them is left alone if they fail."""
        worker = data.draw(st.sampled_from([each for each in self.workers if each.queue]))
        some, worker.queue = worker.queue[:count], worker.queue[count:]
        own = set(worker.own)
        for event in some:
            self.referee.require_turn(worker.held, place_of(event), own)
            own.add(place_of(event))
        if how in ("failed", "refused"):
            worker.fail(some, ValueError("bad"), refuse=how == "refused")
        else:
            for event in some:
                worker.settle(event, how)
        if reports:
            self._tell(worker, worker.report())

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), returns=st.booleans())
    def a_worker_reports(self, data: st.DataObject, returns: bool) -> None:
        """On what it has done so far; it may give back what it has not begun."""
        worker = data.draw(st.sampled_from(self.workers))
        self._tell(worker, worker.report(returns=returns))

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def a_worker_fails_as_a_whole(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        error = ValueError("whole")
        intent = intents.Tell(self.clock(), worker.held, all_of(worker.held, error))
        self._say(worker, intent, lambda group: group.fail(worker.held, error))
        self.workers.remove(worker)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def a_worker_renews_its_lease(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        intent = intents.Renew(self.clock(), worker.held)
        self._say(worker, intent, lambda group: group.renew(worker.held))

    @precondition(lambda self: any(worker.held.exhausted for worker in self.workers))
    @rule(data=st.data())
    def a_worker_gives_up(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from([each for each in self.workers if each.held.exhausted]))
        intent = intents.GiveUp(self.clock(), worker.held)
        self._say(worker, intent, lambda group: group.give_up(worker.held))
        self.workers.remove(worker)

    @precondition(lambda self: self.referee.account.tally.dead_lettered)
    @rule(data=st.data())
    def letters_are_sent_back(self, data: st.DataObject) -> None:
        found = self.store.dead_letters(LetterQuery(group=self.config.name), limit=1_000)
        ids = data.draw(st.sets(st.sampled_from([each.id for each in found]), min_size=1))
        store = self._seen_by(intents.Redrive(self.clock()))
        letters = DeadLetters(self.config.name, store, self.clock, max_events=5)
        assert sum(map(len, letters.redrive(Chosen(ids=tuple(ids))))) == len(ids)

    @rule()
    def the_group_is_resumed(self) -> None:
        self._group(intents.Resume(self.clock())).resume()

    @invariant()
    def the_store_is_as_its_changes_say(self) -> None:
        if hasattr(self, "referee"):
            self.referee.compare()
            self.referee.compare_letters()

    def _reserve(self, look: recovering.Look, most: int | None) -> list[Delivery]:
        return self._group(intents.Tick(self.clock(), look)).reserve(look, most)

    def _begin(self, asked: Delivery) -> Careful | None:
        intent = intents.Begin(self.clock(), asked, "run")
        valid = self.referee.may_begin(intent)
        try:
            group = self._group(intent)
            held = group.lease(asked.id, reservation=asked.reservation, worker="run")
        except ReservationLost:
            assert not valid
            return None
        return Careful("run", self.config.name, 0, self.config, held, list(group.events(held)))

    def _tell(self, worker: Careful, report: Report) -> None:
        intent = intents.Tell(self.clock(), worker.held, report)
        if self._say(worker, intent, lambda group: group.report(worker.held, report)):
            worker.told(worker.held)
        if not worker.held.ranges:
            self.workers.remove(worker)

    def _say(
        self, worker: Careful, intent: intents.Speak, say: Callable[[Group], Delivery]
    ) -> bool:
        """The bus believes a worker if, and only if, it holds its lease."""
        holds = self.referee.holds(intent)
        try:
            worker.held = say(self._group(intent))
        except LeaseLost:
            assert not holds
        return holds

    def _drain(self) -> None:
        """Let everything time out, and work off what is left: all of it must come."""
        for _ in range(500):
            self.clock.advance(3_600_000)
            self.the_group_is_resumed()
            for delivery in self._reserve(recovering.nothing_known, None):
                worker = self._begin(delivery)
                assert worker is not None
                self.workers.append(worker)
                for event in worker.queue:
                    self.referee.require_turn(worker.held, place_of(event), worker.own)
                    worker.settle(event, "processed")
                worker.queue = []
                self._tell(worker, worker.report())
            if self.bus.group(self.config.name).progress().lag == 0:
                break
        self.referee.require_end()

    def _group(self, intent: intents.Intent) -> Group:
        return Group(self.config, self._seen_by(intent), self.clock)

    def _seen_by(self, intent: intents.Intent) -> Store:
        return cast(Store, Raced(self.store, self.referee, intent, Counter(), lambda: None))


@pytest.mark.parametrize("kind", STORES)
def test_each_event_ends_by_itself_and_in_order_whatever_happens(kind: str) -> None:
    machine = type("Machine", (Parts,), {"kind": kind})
    examples = 2 * EXAMPLES[kind]
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=50)
    )


@pytest.mark.parametrize("kind", STORES)
def test_nothing_is_lost_whatever_happens_in_whatever_order(kind: str) -> None:
    machine = type("Machine", (Deliveries,), {"kind": kind})
    examples = EXAMPLES[kind]
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=50)
    )
