"""Groups, workers and clocks in any order: nothing is lost, nothing settles twice.

Hypothesis chooses the steps. A small model keeps what must be true: which worker holds what, and
how each event ended. At the end every group is drained, and every event is counted.
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

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Group
from dagster_bus.errors import LeaseLost, ReservationLost
from dagster_bus.stores import open_store
from tests.conftest import STORES, new_store_url
from tests.support.builders import FakeClock, group_config, numbers, open_bus

EventAt = tuple[str, int, int]
GROUPS = ("readers", "others")


def events_of(delivery: Delivery) -> set[EventAt]:
    return {
        (part.topic, part.partition, offset)
        for part in delivery.ranges
        for offset in range(part.first, part.last + 1)
    }


@dataclass
class Model:
    """What must be true of one group. `leases` has every lease ever given."""

    reservations: list[Delivery] = field(default_factory=list)
    leases: list[Delivery] = field(default_factory=list)
    processed: set[EventAt] = field(default_factory=set)


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

    @rule(name=st.sampled_from(GROUPS))
    def tick(self, name: str) -> None:
        """Once in a while nobody starts what was reserved: the tick was a preview, or lost."""
        reserved = self._group(name).reserve()
        assert len(reserved) <= 2
        self.models[name].reservations += reserved

    @precondition(lambda self: any(model.reservations for model in self.models.values()))
    @rule(data=st.data())
    def a_run_starts(self, data: st.DataObject) -> None:
        name, model = self._pick(data, lambda model: model.reservations)
        delivery = data.draw(st.sampled_from(model.reservations))
        current = self.store.delivery(delivery.id)
        try:
            held = self._group(name).lease(
                delivery.id, reservation=delivery.reservation, worker="run"
            )
        except ReservationLost:
            assert current.state is not State.RESERVED or current.reservation > delivery.reservation
        else:
            assert held.attempt == len(held.errors) + 1
            assert all(held.token > lease.token for lease in model.leases if lease.id == held.id)
            model.leases.append(held)

    @precondition(lambda self: any(model.leases for model in self.models.values()))
    @rule(data=st.data(), step=st.sampled_from(["settle", "fail", "renew"]))
    def a_worker_speaks(self, data: st.DataObject, step: str) -> None:
        """Any worker, at any time: also one whose lease is long over."""
        name, model = self._pick(data, lambda model: model.leases)
        held = data.draw(st.sampled_from(model.leases))
        group = self._group(name)
        holds = group.holds(held)
        try:
            if step == "settle":
                group.settle(held)
                model.processed |= events_of(held)
            elif step == "fail":
                group.fail(held, ValueError("bad"))
            else:
                group.renew(held)
        except LeaseLost:
            assert not holds
        else:
            assert holds

    @invariant()
    def every_event_is_somewhere(self) -> None:
        for name, model in self.models.items():
            progress = self._group(name).progress()
            assert progress.published == len(self.published)
            assert progress.tally.processed == len(model.processed)
            dead = self._dead(name)
            assert progress.tally.dead_lettered == len(dead)
            assert not dead & model.processed
            inside = progress.reserved + progress.running + progress.waiting
            assert 0 <= inside <= progress.lag

    @invariant()
    def no_cursor_passes_an_unsettled_event(self) -> None:
        for name, model in self.models.items():
            settled = model.processed | self._dead(name)
            for at, cursor in self._group(name).progress().cursors.items():
                before = {(at.topic, at.partition, offset) for offset in range(1, cursor + 1)}
                assert before <= settled
                assert (at.topic, at.partition, cursor + 1) not in settled

    def _drain(self, name: str) -> None:
        """Let everything time out, and settle what is left: all of it must come."""
        group, model = self._group(name), self.models[name]
        for _ in range(500):
            self.clock.advance(3_600_000)
            for delivery in group.reserve():
                held = group.lease(delivery.id, reservation=delivery.reservation, worker="last")
                group.settle(held)
                model.processed |= events_of(held)
            if group.progress().lag == 0:
                break
        assert model.processed | self._dead(name) == self.published
        cursors = group.progress().cursors
        for (_topic, partition), cursor in cursors.items():
            assert cursor == sum(1 for event in self.published if event[1] == partition)

    def _dead(self, name: str) -> set[EventAt]:
        letters = self.bus.dead_letters(name, limit=1_000_000)
        found = {(each.event.topic, each.event.partition, each.event.offset) for each in letters}
        assert len(found) == len(letters), "an event dies once"
        assert all(len(letter.errors) == 3 for letter in letters)
        return found

    def _group(self, name: str) -> Group:
        return self.bus.group(name)

    def _pick(self, data: st.DataObject, has: Callable[[Model], object]) -> tuple[str, Model]:
        names = [name for name in GROUPS if has(self.models[name])]
        name = data.draw(st.sampled_from(names))
        return name, self.models[name]


@pytest.mark.parametrize("kind", STORES)
def test_nothing_is_lost_whatever_happens_in_whatever_order(kind: str) -> None:
    machine = type("Machine", (Deliveries,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40))
