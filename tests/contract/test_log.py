"""The log of every store: dense offsets, time that never goes back, all or nothing."""

import threading
from itertools import pairwise

import pytest

from dagster_bus.core.store import Store
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import PartitionCountChanged, UnknownTopic
from dagster_bus.stores import open_store
from tests.support.builders import START_MS, new_event

ALL = 1 << 39
ORDERS = TopicConfig("orders", 2)


def everything(store: Store, topic: str = "orders", partition: int = 0) -> list[str]:
    return [event.payload_json for event in store.iterate(OffsetRange(topic, partition, 1, ALL))]


def test_events_get_dense_offsets_from_one_in_each_partition(store: Store) -> None:
    store.declare([ORDERS])
    first = store.append([new_event("orders", n % 2) for n in range(4)], START_MS)
    second = store.append([new_event("orders", 0)], START_MS)
    placed = [(at.partition, at.offset) for at in [*first, *second]]
    assert placed == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]


def test_an_event_is_read_as_it_was_published(store: Store) -> None:
    store.declare([ORDERS])
    event = new_event("orders", 1, '{"é":"😀"}')._replace(
        key="k", source="s", attributes='{"a":1}', priority=0, ttl_s=9, payload_sha256="ab"
    )
    store.append([event], START_MS)
    (read,) = store.read(OffsetRange("orders", 1, 1, 1), 10)
    assert (read.id, read.ts, read.topic, read.partition, read.offset) == (
        event.id, START_MS, "orders", 1, 1,
    )  # fmt: skip
    assert (read.key, read.source, read.attributes, read.payload) == (
        "k",
        "s",
        {"a": 1},
        {"é": "😀"},
    )
    assert (read.priority, read.ttl_s, read.payload_sha256) == (0, 9, "ab")


def test_time_never_decreases_even_if_the_clock_does(store: Store) -> None:
    store.declare([ORDERS])
    for now_ms in (START_MS, START_MS - 60_000, START_MS + 5):
        store.append([new_event("orders")], now_ms)
    times = [event.ts for event in store.iterate(OffsetRange("orders", 0, 1, ALL))]
    assert times == [START_MS, START_MS, START_MS + 5]


def test_an_append_happens_as_a_whole_or_not_at_all(store: Store) -> None:
    store.declare([ORDERS])
    with pytest.raises(UnknownTopic):
        store.append([new_event("orders"), new_event("orders", 7)], START_MS)
    assert everything(store) == []
    assert store.append([new_event("orders")], START_MS)[0].offset == 1


def test_a_range_is_read_in_order_and_in_bounded_pages(store: Store) -> None:
    store.declare([ORDERS])
    store.append([new_event("orders", 0, str(n)) for n in range(2_500)], START_MS)
    assert everything(store) == [str(n) for n in range(2_500)]
    middle = store.read(OffsetRange("orders", 0, 1_000, 1_009), 3)
    assert [event.offset for event in middle] == [1_000, 1_001, 1_002]


def test_the_place_of_a_time_is_found(store: Store) -> None:
    store.declare([ORDERS, TopicConfig("other", 1)])
    for hour in range(5):
        store.append([new_event("orders", 0) for _ in range(10)], START_MS + hour * 100)
    both = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    expected = {-1: 1, 0: 1, 1: 11, 100: 11, 101: 21, 400: 41, 401: 51}
    for after, offset in expected.items():
        found = store.offsets_at(both, START_MS + after)
        assert found == {both[0]: offset, both[1]: 1}


def test_committed_events_are_there_after_reopening(store_url: str) -> None:
    with open_store(store_url) as store:
        store.declare([ORDERS])
        store.append([new_event("orders", 0, "1")], START_MS)
    with open_store(store_url, create=False) as store:
        assert everything(store) == ["1"]
        assert store.topics() == [ORDERS]
        assert store.append([new_event("orders")], START_MS)[0].offset == 2


def test_another_number_of_partitions_is_refused_and_explained(store: Store) -> None:
    store.declare([ORDERS])
    with pytest.raises(PartitionCountChanged, match="2 partitions in the store and is declared"):
        store.declare([TopicConfig("fresh", 1), TopicConfig("orders", 3)])
    assert store.topics() == [ORDERS]


def test_threads_share_a_store_and_no_reader_sees_a_gap(store: Store) -> None:
    store.declare([ORDERS])
    gaps: list[list[int]] = []
    done = threading.Event()

    def publish() -> None:
        for _ in range(50):
            store.append([new_event("orders"), new_event("orders")], START_MS)

    def watch() -> None:
        while not done.is_set():
            offsets = [event.offset for event in store.read(OffsetRange("orders", 0, 1, ALL), ALL)]
            if any(later - earlier != 1 for earlier, later in pairwise([0, *offsets])):
                gaps.append(offsets)

    watcher = threading.Thread(target=watch)
    publishers = [threading.Thread(target=publish) for _ in range(4)]
    watcher.start()
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
    done.set()
    watcher.join()
    assert gaps == []
    assert len(everything(store)) == 400
