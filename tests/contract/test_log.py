"""The log of every store: dense offsets, time that never goes back, all or nothing."""

import threading
from itertools import pairwise

import pytest

from dagster_bus.core.event import Event, Published
from dagster_bus.core.store import Bounds, Store
from dagster_bus.core.topic import (
    OffsetRange,
    SchemaConfig,
    SchemaVersion,
    TopicConfig,
    TopicPartition,
)
from dagster_bus.errors import PartitionCountChanged, UnknownTopic
from dagster_bus.stores import open_store
from tests.support.builders import START_MS, append, new_batch

ALL = 1 << 39
ORDERS = TopicConfig("orders", 2)


def everything(store: Store, topic: str = "orders", partition: int = 0) -> list[str]:
    return [event.payload_json for event in store.iterate(OffsetRange(topic, partition, 1, ALL))]


def times(store: Store) -> list[int]:
    return [event.ts for event in store.iterate(OffsetRange("orders", 0, 1, ALL))]


def test_events_get_dense_offsets_from_one_in_each_partition(store: Store) -> None:
    store.declare([ORDERS])
    first = append(store, new_batch("orders", [0, 1, 0, 1]))
    second = append(store, new_batch("orders", [0]))
    placed = [(at.partition, at.offset) for at in [*first, *second]]
    assert placed == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]


def test_batches_of_several_publishers_go_in_together_and_in_turn(store: Store) -> None:
    store.declare([ORDERS, TopicConfig("other", 1)])
    mine, yours, other = store.append(
        [
            new_batch("orders", [0, 0], ["1", "2"]),
            new_batch("orders", [0, 1], ["3", "4"]),
            new_batch("other", [0], ["5"]),
        ],
        START_MS,
    )
    assert [(at.partition, at.offset) for at in mine] == [(0, 1), (0, 2)]
    assert [(at.partition, at.offset) for at in yours] == [(0, 3), (1, 1)]
    assert [(at.topic, at.offset) for at in other] == [("other", 1)]
    assert everything(store) == ["1", "2", "3"]


def test_an_event_is_read_as_it_was_published(store: Store) -> None:
    store.declare([ORDERS])
    batch = new_batch(
        "orders",
        [1],
        ['{"é":"😀","n":123456789012345678901234567890}'],
        keys=["k"],
        sources=["s"],
        attributes=['{"a":1,"b":true,"c":1.0,"d":"ö","e.f":"$x"}'],
        schema_versions=[7],
        priorities=[0],
        idempotency_keys=["once"],
        ttls=[9],
        payload_sha256s=["ab"],
    )
    (at,) = append(store, batch)
    assert at == Published("orders", 1, 1, batch.ids[0], START_MS, duplicate=False)
    (read,) = store.read(OffsetRange("orders", 1, 1, 1), 10)
    assert read == Event(
        id=batch.ids[0],
        ts=START_MS,
        topic="orders",
        partition=1,
        offset=1,
        key="k",
        source="s",
        schema_version=7,
        attributes_json='{"a":1,"b":true,"c":1.0,"d":"ö","e.f":"$x"}',
        priority=0,
        idempotency_key="once",
        ttl_s=9,
        payload_json='{"é":"😀","n":123456789012345678901234567890}',
        payload_sha256="ab",
    )


def test_time_never_decreases_even_if_the_clock_does(store: Store) -> None:
    store.declare([ORDERS])
    for now_ms in (START_MS, START_MS - 60_000, START_MS + 5):
        append(store, new_batch("orders"), now_ms)
    assert times(store) == [START_MS, START_MS, START_MS + 5]


def test_an_event_of_another_log_keeps_its_time_as_far_as_order_and_clock_allow(
    store: Store,
) -> None:
    store.declare([ORDERS])
    given = [START_MS - 90, None, START_MS - 50, START_MS + 999]
    published = append(store, new_batch("orders", [0, 1, 0, 0], times=given))
    assert [at.ts for at in published] == [START_MS - 90, START_MS, START_MS - 50, START_MS]
    (late,) = append(store, new_batch("orders", times=[START_MS - 70]))
    assert late.ts == START_MS
    assert times(store) == [START_MS - 90, START_MS - 50, START_MS, START_MS]


def test_an_append_happens_as_a_whole_or_not_at_all(store: Store) -> None:
    store.declare([ORDERS])
    with pytest.raises(UnknownTopic):
        append(store, new_batch("orders", [0, 7]))
    with pytest.raises(UnknownTopic):
        store.append([new_batch("orders"), new_batch("nowhere")], START_MS)
    assert everything(store) == []
    assert append(store, new_batch("orders"))[0].offset == 1


def test_a_range_is_read_in_order_and_in_bounded_pages(store: Store) -> None:
    store.declare([ORDERS])
    append(store, new_batch("orders", [0] * 12_500, [str(n) for n in range(12_500)]))
    assert everything(store) == [str(n) for n in range(12_500)]
    middle = store.read(OffsetRange("orders", 0, 1_000, 1_009), 3)
    assert [event.offset for event in middle] == [1_000, 1_001, 1_002]
    assert store.read(OffsetRange("nowhere", 0, 1, 9), 3) == []
    assert list(store.iterate(OffsetRange("orders", 0, 9, 8))) == []


def test_large_events_are_read_one_by_one_if_need_be(store: Store) -> None:
    store.declare([ORDERS])
    large = '"' + "x" * 9_000_000 + '"'
    for _ in range(3):
        append(store, new_batch("orders", payloads=[large]))
    assert [len(text) for text in everything(store)] == [len(large)] * 3


def test_the_place_of_a_time_is_found(store: Store) -> None:
    store.declare([ORDERS, TopicConfig("other", 1)])
    for hour in range(5):
        append(store, new_batch("orders", [0] * 10), START_MS + hour * 100)
    both = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    expected = {-1: 1, 0: 1, 1: 11, 100: 11, 101: 21, 400: 41, 401: 51}
    for after, offset in expected.items():
        found = store.offsets_at(both, START_MS + after)
        assert found == {both[0]: offset, both[1]: 1}


def test_bounds_tell_what_a_partition_holds(store: Store) -> None:
    store.declare([ORDERS, TopicConfig("other", 1)])
    append(store, new_batch("orders", [1] * 3, ["1", "22", "333"]))
    assert list(store.bounds(["orders"]).items()) == [
        (TopicPartition("orders", 0), Bounds(1, 1, 0, 0, 0)),
        (TopicPartition("orders", 1), Bounds(1, 4, START_MS, 6, 0)),
    ]


def test_committed_events_are_there_after_reopening(store_url: str) -> None:
    with open_store(store_url) as store:
        store.declare([ORDERS])
        append(store, new_batch("orders", payloads=["1"]))
    with open_store(store_url, create=False) as store:
        assert everything(store) == ["1"]
        assert store.topics() == [ORDERS]
        assert append(store, new_batch("orders"))[0].offset == 2


def test_a_topics_rules_are_kept_and_brought_up_to_date(store_url: str) -> None:
    versions = {
        1: SchemaVersion("fields", {"n": "bigint"}),
        2: SchemaVersion("json_schema", {"$ref": "#/$defs/a.b", "$defs": {"a.b": True}}),
        3: SchemaVersion("model", "shop.models:Order"),
    }
    config = TopicConfig(
        "orders",
        2,
        schema=SchemaConfig(versions, current=3, strict=True),
        dedup_ms=5,
        max_payload_bytes=6,
        max_key_bytes=7,
        retain_ms=8,
        compacted=True,
        tombstone_ms=9,
    )
    with open_store(store_url) as store:
        store.declare([ORDERS])
        store.declare([config])
    with open_store(store_url, create=False) as store:
        assert store.topics() == [config]


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
            append(store, new_batch("orders", [0, 0]))

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
