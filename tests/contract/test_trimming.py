"""Retention and compaction on every store, while others read."""

import threading
from dataclasses import replace
from typing import Any, cast

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Message
from dagster_bus.core.groups import Group
from dagster_bus.core.store import Bounds, GroupView, Store
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import OffsetTrimmed
from tests.support.builders import (
    START_MS,
    FakeClock,
    append,
    group_config,
    new_batch,
    numbers,
    open_bus,
)

ALL = 1 << 39
ORDERS = TopicPartition("orders", 0)
DAY_MS = 86_400_000


def offsets(store: Store, first: int = 1) -> list[int]:
    return [event.offset for event in store.iterate(OffsetRange("orders", 0, first, ALL))]


def fill(store: Store, count: int = 10) -> None:
    """Events of 1 to `count` bytes, a second apart."""
    store.declare([TopicConfig("orders")])
    for n in range(count):
        append(store, new_batch("orders", payloads=["1" * (n + 1)]), START_MS + n * 1_000)


def test_a_reader_of_a_trimmed_offset_is_told_the_first_that_is_there(store: Store) -> None:
    fill(store)
    assert store.trim(ORDERS, 4, 100) == 3
    with pytest.raises(OffsetTrimmed, match="orders/0 begins with offset 4: 2 was") as told:
        store.read(OffsetRange("orders", 0, 2, 9), 1)
    assert told.value.first == 4
    with pytest.raises(OffsetTrimmed):
        offsets(store, 3)
    assert offsets(store, 4) == list(range(4, 11))
    assert store.bounds(["orders"])[ORDERS].first == 4


def test_a_trim_goes_in_steps_and_not_back(store: Store) -> None:
    fill(store)
    assert store.trim(ORDERS, 6, 2) == 2
    assert store.bounds(["orders"])[ORDERS].first == 3
    assert store.trim(ORDERS, 6, 100) == 3
    assert store.trim(ORDERS, 6, 100) == 0
    assert store.trim(ORDERS, 2, 100) == 0
    assert store.bounds(["orders"])[ORDERS].first == 6


def test_a_log_that_was_emptied_goes_on_where_it_was(store: Store) -> None:
    fill(store)
    assert store.trim(ORDERS, 999, 100) == 10
    assert store.bounds(["orders"])[ORDERS] == Bounds(11, 11, START_MS + 9_000, 55, 0)
    assert offsets(store, 11) == []
    (at,) = append(store, new_batch("orders", payloads=["1"]), START_MS)
    assert (at.offset, at.ts) == (11, START_MS + 9_000)
    assert store.bounds(["orders"])[ORDERS] == Bounds(11, 12, START_MS + 9_000, 56, 0)


def test_places_of_times_and_sizes_are_found_in_a_trimmed_log(store: Store) -> None:
    fill(store)
    assert [store.offset_keeping(ORDERS, keep) for keep in (0, 9, 10, 18, 19, 54, 55, 99)] == [
        11, 11, 10, 10, 9, 2, 1, 1,
    ]  # fmt: skip
    store.trim(ORDERS, 4, 100)
    assert store.offset_keeping(ORDERS, 999) == 4
    assert store.offset_keeping(ORDERS, 19) == 9
    assert store.offsets_at([ORDERS], START_MS) == {ORDERS: 4}
    assert store.offsets_at([ORDERS], START_MS + 5_000) == {ORDERS: 6}


def keyed(store: Store, *pairs: tuple[str | None, str], now_ms: int = START_MS) -> None:
    keys, payloads = zip(*pairs, strict=True)
    append(store, new_batch("orders", [0] * len(pairs), payloads, keys=list(keys)), now_ms)


def survivors(store: Store) -> list[tuple[int, str | None, str]]:
    events = store.iterate(OffsetRange("orders", 0, 1, ALL))
    return [(event.offset, event.key, event.payload_json) for event in events]


def test_the_newest_event_of_each_key_survives_and_those_without_one(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    keyed(store, ("a", "1"), ("b", "2"), (None, "3"), ("a", "4"), ("c", "5"), ("a", "6"))
    step = store.compact(ORDERS, 7, 0, 100)
    assert (step.compacted_to, step.removed) == (6, 2)
    assert survivors(store) == [(2, "b", "2"), (3, None, "3"), (5, "c", "5"), (6, "a", "6")]
    keyed(store, ("b", "7"), ("d", "8"))
    assert store.compact(ORDERS, 9, 0, 100).removed == 1
    assert [key for _, key, _ in survivors(store)] == [None, "c", "a", "b", "d"]
    assert store.bounds(["orders"])[ORDERS].compacted_to == 8


def test_compaction_goes_in_steps_and_no_further_than_asked(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    keyed(store, *((key, "1") for key in "abcabcabc"))
    assert store.compact(ORDERS, 8, 0, 4).compacted_to == 4
    assert [offset for offset, _, _ in survivors(store)] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert store.compact(ORDERS, 8, 0, 4).compacted_to == 7
    assert [offset for offset, _, _ in survivors(store)] == [5, 6, 7, 8, 9]
    assert store.compact(ORDERS, 8, 0, 4).removed == 0


def test_a_null_payload_deletes_its_key_and_later_itself(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    keyed(store, ("a", "1"), ("b", "2"), ("a", "null"))
    store.compact(ORDERS, 4, START_MS, 100)
    assert survivors(store) == [(2, "b", "2"), (3, "a", "null")]
    assert store.compact(ORDERS, 4, START_MS + 1, 100).removed == 1
    assert survivors(store) == [(2, "b", "2")]
    keyed(store, ("a", "5"))
    assert survivors(store)[-1] == (4, "a", "5")


def test_a_log_whose_last_event_was_a_tombstone_goes_on_where_it_was(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    keyed(store, ("a", "null"))
    store.compact(ORDERS, 2, START_MS + 1, 100)
    assert survivors(store) == []
    (at,) = append(store, new_batch("orders"), START_MS - 5)
    assert (at.offset, at.ts) == (2, START_MS)


def test_a_trimmed_and_compacted_log_forgets_keys_that_are_gone(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    keyed(store, ("a", "1"), ("b", "2"), ("a", "3"))
    store.compact(ORDERS, 4, 0, 100)
    store.trim(ORDERS, 3, 100)
    keyed(store, ("b", "4"), ("a", "5"))
    assert store.compact(ORDERS, 6, 0, 100).removed == 1
    assert [offset for offset, _, _ in list(_from(store, 3))] == [4, 5]


def _from(store: Store, first: int) -> list[tuple[int, str | None, str]]:
    events = store.iterate(OffsetRange("orders", 0, first, ALL))
    return [(event.offset, event.key, event.payload_json) for event in events]


def open_topic(store: Store, clock: FakeClock, *groups: str, **rules: object) -> Bus:
    configs = [group_config(name=name) for name in groups]
    topics = [TopicConfig("orders", 1, **rules)]  # type: ignore[arg-type]
    store.declare(topics)
    return Bus(store, topics, configs, clock)


def test_events_past_their_age_are_let_go(store: Store) -> None:
    clock = FakeClock()
    bus = open_topic(store, clock, retain_ms=DAY_MS)
    for _ in range(4):
        bus.publish_many("orders", numbers(10))
        clock.advance(DAY_MS // 2)
    (done,) = bus.maintain()
    assert (done.trimmed, done.held) == (20, 0)
    assert [event.offset for event in bus.read("orders")] == list(range(21, 41))


def test_events_past_the_topics_size_are_let_go_oldest_first(store: Store) -> None:
    bus = open_topic(store, FakeClock(), retain_bytes=100)
    bus.publish_many("orders", ["x" * 18 for _ in range(10)])  # 20 bytes, and 2 of attributes
    (done,) = bus.maintain("orders")
    assert done.trimmed == 6
    assert [event.offset for event in bus.read("orders")] == [7, 8, 9, 10]


def test_what_a_group_has_not_settled_stays_however_old_it_is(store: Store) -> None:
    clock = FakeClock()
    bus = open_topic(store, clock, "fast", "slow", retain_ms=DAY_MS)
    bus.publish_many("orders", numbers(10))
    settle(bus, "fast")
    clock.advance(2 * DAY_MS)
    (held,) = bus.maintain()
    assert (held.trimmed, held.held, held.by) == (0, 10, ("slow",))
    settle(bus, "slow")
    (done,) = bus.maintain()
    assert (done.trimmed, done.held, done.by) == (10, 0, ())


def test_a_group_that_begins_with_a_trimmed_log_counts_what_it_can_get(store: Store) -> None:
    clock = FakeClock()
    bus = open_topic(store, clock, retain_ms=DAY_MS)
    bus.publish_many("orders", numbers(10))
    clock.advance(2 * DAY_MS)
    bus.maintain()
    bus.publish_many("orders", numbers(5))
    later = open_topic(store, clock, "late", retain_ms=DAY_MS)
    assert later.group("late").progress().published == 5
    settle(later, "late")
    progress = later.group("late").progress()
    assert (progress.lag, progress.tally.processed) == (0, 5)
    assert progress.cursors == {ORDERS: 15}
    later.publish_many("orders", numbers(1))
    assert later.group("late").progress().published == 6


def test_a_group_that_was_away_while_the_log_was_trimmed_goes_on_with_what_is_left(
    store: Store,
) -> None:
    clock = FakeClock()
    bus = open_topic(store, clock, "away", retain_ms=DAY_MS)
    bus.publish_many("orders", numbers(3))
    settle(bus, "away")
    without = open_topic(store, clock, retain_ms=DAY_MS)
    without.publish_many("orders", numbers(4))
    clock.advance(2 * DAY_MS)
    without.publish_many("orders", numbers(5))
    assert without.maintain()[0].trimmed == 7
    progress = bus.group("away").progress()
    assert (progress.published, progress.lag) == (8, 5)
    settle(bus, "away")
    progress = bus.group("away").progress()
    assert (progress.published, progress.lag, progress.tally.processed) == (8, 0, 8)


class TrimmedMeanwhile:
    """A store whose log is trimmed right after a group was looked at, once."""

    def __init__(self, store: Store, first: int) -> None:
        self._store = store
        self._first: int | None = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def view(self, *args: Any, **kwargs: Any) -> GroupView:
        found = self._store.view(*args, **kwargs)
        first, self._first = self._first, None
        if first is not None:
            self._store.trim(ORDERS, first, 100)
        return found


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_group_takes_nothing_that_was_trimmed_while_it_decided(
    store: Store, has_begun: bool
) -> None:
    fill(store)
    config = group_config(max_events=4)
    if has_begun:
        group = Group(replace(config, max_events=2), store, FakeClock())
        group.settle(group.take("run")[0])
    raced = cast(Store, TrimmedMeanwhile(store, 6))
    group = Group(config, raced, FakeClock())
    (held,) = group.take("run")
    assert [event.offset for event in group.events(held)] == [6, 7, 8, 9]
    group.settle(held)
    progress = group.progress()
    assert (progress.lag, progress.tally.processed) == (1, 4 + 2 * has_begun)


def test_what_a_delivery_holds_stays_whoever_it_belongs_to(store: Store) -> None:
    """The group is no longer declared, and its run is still under way."""
    clock = FakeClock()
    bus = open_topic(store, clock, "gone", retain_ms=DAY_MS, compacted=True)
    bus.publish_many("orders", [Message(n, key="a") for n in range(5)])
    group = bus.group("gone")
    held = group.lease(group.reserve()[0].id, reservation=1, worker="run")
    clock.advance(2_000)
    without = open_topic(store, clock, retain_ms=1, compacted=True)
    (done,) = without.maintain()
    assert (done.trimmed, done.compacted) == (0, 0)
    for _ in range(3):
        failed = group.fail(held, ValueError("bad"))
        if failed.outcome is None:
            clock.now_ms = failed.due_ms
            (again,) = group.reserve()
            held = group.lease(again.id, reservation=again.reservation, worker="run")
    assert group.progress().tally.dead_lettered == 5
    assert without.maintain()[0].trimmed == 5


def settle(bus: Bus, name: str) -> None:
    group = bus.group(name)
    while reserved := group.reserve():
        for each in reserved:
            held = group.lease(each.id, reservation=each.reservation, worker="run")
            group.settle(held)


def test_compaction_waits_for_groups_too(store: Store) -> None:
    clock = FakeClock()
    bus = open_topic(store, clock, "readers", compacted=True, tombstone_ms=DAY_MS)
    bus.publish_many("orders", [Message(n, key="a") for n in range(5)])
    assert bus.maintain()[0].compacted == 0
    settle(bus, "readers")
    assert bus.maintain()[0].compacted == 4
    bus.publish("orders", None, key="a")
    settle(bus, "readers")
    assert bus.maintain()[0].compacted == 1
    clock.advance(DAY_MS + 1)
    assert bus.maintain()[0].compacted == 1
    assert list(bus.read("orders")) == []
    assert bus.group("readers").progress().lag == 0


def test_many_keys_are_compacted_in_many_steps(store: Store) -> None:
    bus = open_topic(store, FakeClock(), compacted=True)
    for _ in range(3):
        bus.publish_many("orders", [Message(n, key=f"k{n % 4_000}") for n in range(6_000)])
    assert bus.maintain()[0].compacted == 18_000 - 4_000
    assert sorted(event.key or "" for event in bus.read("orders")) == sorted(
        f"k{n}" for n in range(4_000)
    )


def test_readers_read_on_while_the_log_is_trimmed_and_compacted(store: Store) -> None:
    """They see events in order, and are told if what they want next is gone."""
    bus = open_bus(store, FakeClock(), partitions=1, compacted=True, retain_bytes=2_000)
    bus = Bus(store, bus.topics, (), FakeClock())
    stop = threading.Event()
    mistakes: list[object] = []

    def read() -> None:
        while not stop.is_set():
            try:
                seen = [event.offset for event in bus.read("orders")]
            except OffsetTrimmed:
                continue
            if seen != sorted(set(seen)):
                mistakes.append(seen)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(30):
        bus.publish_many("orders", [Message(n, key=f"k{n % 7}") for n in range(20)])
        if n % 3 == 0:
            bus.maintain()
    stop.set()
    for reader in readers:
        reader.join()
    assert mistakes == []
