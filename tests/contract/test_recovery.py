"""A group whose workers all vanished at once, with very many deliveries under way, recovers."""

from dataclasses import replace

import pytest

from dagster_bus.core import delivery as life
from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Group
from dagster_bus.core.store import Change, Store, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import HOURLY
from dagster_bus.errors import StaleState
from tests.support.builders import START_MS, FakeClock, group_config, numbers, open_bus

MANY = 100_000
AT_ONCE = 10_000
AT = TopicPartition("orders", 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def leave_running(store: Store, bus: Bus, count: int) -> None:
    """So many deliveries of one event each, whose leases end now."""
    for version, first in enumerate(range(1, count + 1, AT_ONCE)):
        end = min(first + AT_ONCE, count + 1)
        bus.publish_many("orders", numbers(end - first))
        store.commit(
            Change(
                group="readers",
                deliveries=tuple(map(running, range(first, end))),
                frontiers={AT: end},
                expected_version=version,
                lasting=False,
            )
        )


def running(offset: int) -> Delivery:
    return Delivery(
        id=f"delivery-{offset}",
        group="readers",
        window=HOURLY.at(START_MS).key,
        ranges=(OffsetRange(*AT, offset, offset),),
        state=State.RUNNING,
        token=1,
        worker=f"worker-{offset}",
        due_ms=START_MS,
        created_ms=START_MS,
    )


def work_off(group: Group) -> None:
    while reserved := group.reserve():
        for each in reserved:
            held = group.lease(each.id, reservation=each.reservation, worker="next")
            assert [error.type for error in held.errors] == ["WorkerGone"]
            group.settle(held)


def test_very_many_vanished_workers_are_all_taken_from(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(max_inflight=20), partitions=1)
    leave_running(store, bus, MANY)
    group = bus.group("readers")
    assert group.progress().running == MANY
    assert group.reserve() == [], "each has made an attempt, and waits for its next one"
    progress = group.progress()
    assert (progress.running, progress.waiting, progress.lag) == (0, MANY, MANY)
    assert len({each.id for each in store.open_deliveries("readers")}) == MANY
    clock.advance(1_000)
    assert len(group.reserve()) == 20


def test_what_they_left_is_worked_off(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, group_config(max_inflight=20), partitions=1)
    leave_running(store, bus, 100)
    group = bus.group("readers")
    group.reserve()
    clock.advance(1_000)
    work_off(group)
    progress = group.progress()
    assert progress.tally == Tally(processed=100)
    assert (progress.lag, progress.cursors[AT]) == (0, 100)


def test_one_that_has_changed_keeps_all_of_a_change_from_being_written(
    store: Store, clock: FakeClock
) -> None:
    bus = open_bus(store, clock, partitions=1)
    leave_running(store, bus, 100)
    found = store.open_deliveries("readers")
    following = [life.put_aside(each, now_ms=START_MS) for each in found]
    store.commit(Change(group="readers", deliveries=(following[57],)))
    with pytest.raises(StaleState):
        store.commit(Change(group="readers", deliveries=tuple(following)))
    with pytest.raises(StaleState):
        store.commit(Change(group="readers", deliveries=(*map(running, (200, 58, 201)),)))
    assert len(store.open_deliveries("readers")) == 100
    assert store.open_deliveries("readers", State.WAITING) == [following[57]]


def test_many_deliveries_change_their_ranges_in_one_change(store: Store, clock: FakeClock) -> None:
    bus = open_bus(store, clock, partitions=1)
    leave_running(store, bus, 100)
    found = {each.ranges[0].first: each for each in store.open_deliveries("readers")}
    done = [life.settle_rest(replace(found[n], ranges=()), now_ms=START_MS) for n in range(1, 41)]
    joined = life.put_aside(found[50], now_ms=START_MS)
    joined = replace(joined, ranges=(OffsetRange(*AT, 45, 50),))
    kept = [life.put_aside(found[n], now_ms=START_MS) for n in range(51, 101)]
    left = [life.abandon(found[n], now_ms=START_MS) for n in range(41, 50)]
    change = Change(group="readers", deliveries=(*done, joined, *left, *kept))
    store.commit(replace(change, done=Tally(processed=40)))
    assert store.trim(AT, 100, 1_000) == 44, "all below what an open delivery holds"
    assert bus.group("readers").progress().cursors[AT] == 44
    assert store.delivery("delivery-50") == joined
