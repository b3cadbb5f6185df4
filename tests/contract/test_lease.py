"""A lease that is kept alive from a thread."""

import threading

import pytest

from dagster_bus.core.lease import kept
from dagster_bus.core.store import Store
from dagster_bus.errors import LeaseLost
from tests.support.builders import FakeClock, group_config, numbers, open_bus
from tests.support.dagster_dev import wait_for


def test_a_lease_is_renewed_while_the_work_goes_on_and_no_longer(store: Store) -> None:
    """Beats come in real time; the lease is measured by a clock that the test moves."""
    clock = FakeClock()
    bus = open_bus(store, clock, group_config(lease_ms=40))
    bus.publish_many("orders", numbers(3))
    group = bus.group("readers")
    held = group.lease(group.reserve()[0].id, reservation=1, worker="run")
    with kept(group, held):
        for _ in range(5):
            clock.advance(20)
            wait_for("heartbeat", lambda: store.delivery(held.id).due_ms == clock() + 40, 30)
    last = store.delivery(held.id)
    assert last.token == 1
    assert "lease-" not in "".join(thread.name for thread in threading.enumerate())


def test_a_worker_that_slept_through_its_lease_finds_out_when_it_checks(store: Store) -> None:
    clock = FakeClock()
    bus = open_bus(store, clock)
    bus.publish_many("orders", numbers(3))
    group = bus.group("readers")
    held = group.lease(group.reserve()[0].id, reservation=1, worker="run")
    with kept(group, held) as keeper:
        keeper.check()
        clock.advance(5_000)
        with pytest.raises(LeaseLost):
            keeper.check()
