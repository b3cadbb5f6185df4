"""What a group's steps cost on the embedded store: a constant number of statements."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.groups import Group
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import Store
from dagster_bus.stores import open_store
from tests.support.builders import FakeClock, group_config, numbers, open_bus

FRAME = ("BEGIN", "COMMIT")
WRITES = ("INSERT", "UPDATE", "DELETE")


class Statements:
    """The statements that a store executes, but for the frames of transactions. One that is
    executed for many rows in a row counts once."""

    def __init__(self, store: Store) -> None:
        self.seen: list[str] = []
        for shared in (store._file._writer, store._file._reader):  # type: ignore[attr-defined]
            shared.connection.set_trace_callback(self._see)

    def _see(self, statement: str) -> None:
        said = [line for line in statement.splitlines() if not line.startswith("--")]
        verb = " ".join(" ".join(said).split()[:4])
        is_for_more_rows = verb.startswith(WRITES) and self.seen[-1:] == [verb]
        if not verb.startswith(FRAME) and not is_for_more_rows:
            self.seen.append(verb)

    def count(self) -> int:
        """How many there were since the last look."""
        seen, self.seen = self.seen, []
        return len(seen)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/bus.db") as opened:
        yield opened


@pytest.fixture
def bus(store: Store) -> Bus:
    config = group_config(max_events=10_000, retry=RetryPolicy(max_attempts=2))
    return open_bus(store, FakeClock(), config, partitions=1)


def round_of(group: Group, statements: Statements) -> dict[str, int]:
    statements.count()
    (delivery,) = group.reserve()
    costs = {"reserve": statements.count()}
    held = group.lease(delivery.id, reservation=1, worker="run")
    costs["lease"] = statements.count()
    group.renew(held)
    costs["renew"] = statements.count()
    group.settle(held)
    costs["settle"] = statements.count()
    return costs


def test_a_tick_with_nothing_new_is_at_most_three_queries(store: Store, bus: Bus) -> None:
    group = bus.group("readers")
    bus.publish_many("orders", numbers(10))
    round_of(group, statements := Statements(store))
    assert group.reserve() == []
    assert statements.count() <= 3


def test_reserving_leasing_and_settling_cost_the_same_whatever_the_size_of_the_batch(
    store: Store, bus: Bus
) -> None:
    group = bus.group("readers")
    statements = Statements(store)
    costs = []
    bus.publish("orders", 0)
    round_of(group, statements)  # the first one makes the group
    for count in (1, 10, 5_000):
        bus.publish_many("orders", numbers(count))
        costs.append(round_of(group, statements))
    assert costs[0] == costs[1] == costs[2]
    assert costs[0]["lease"] <= 5
    assert costs[0]["renew"] <= 5
    assert costs[0]["settle"] <= 7
    assert costs[0]["reserve"] <= 15


def test_reserving_costs_the_same_however_many_deliveries_are_reserved(tmp_path: Path) -> None:
    costs = []
    for inflight in (2, 20, 500):
        with open_store(f"sqlite:///{tmp_path}/{inflight}.db") as store:
            clock = FakeClock()
            config = group_config(max_events=2, max_inflight=inflight)
            bus = open_bus(store, clock, config, partitions=1)
            group = bus.group("readers")
            bus.publish_many("orders", numbers(2 * inflight + 1))
            statements = Statements(store)
            assert len(group.reserve()) == inflight
            cost = [statements.count()]
            clock.advance(10_000)  # nobody came for them
            assert len(group.reserve()) == inflight
            costs.append((*cost, statements.count()))
    assert costs[0] == costs[1] == costs[2]
    assert max(costs[0]) <= 15
