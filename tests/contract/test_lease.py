"""A lease that is kept alive from a thread."""

import threading

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.lease import kept
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import LeaseLost
from tests.support.builders import FakeClock, group_config, numbers, open_bus


def test_a_lease_is_renewed_while_the_work_goes_on(store: Store) -> None:
    topics = [TopicConfig("orders", 1)]
    store.declare(topics)
    bus = Bus(store, topics, [group_config(lease_ms=80)], system_clock)
    bus.publish_many("orders", numbers(3))
    group = bus.group("readers")
    held = group.lease(group.reserve()[0].id, reservation=1, worker="run")
    with kept(group, held):
        threading.Event().wait(0.4)  # five leases long
        assert group.reserve() == []
    assert group.settle(held).token == 1


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
