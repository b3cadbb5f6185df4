"""What is special about the store on MongoDB: its collections, its plans, its many publishers."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from dagster_bus.core.store import Store
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import OffsetTrimmed, StoreUnusable
from dagster_bus.stores import open_store
from dagster_bus.stores.arrow import read_batches
from dagster_bus.stores.mongo.schema import INDEXES
from tests.support.builders import (
    START_MS,
    FakeClock,
    append,
    group_config,
    new_batch,
    numbers,
    open_bus,
)
from tests.support.dagster_dev import wait_for
from tests.support.mongo import fresh_database_url

PROJECT = Path(__file__).parents[2]
ALL = 1 << 39
ORDERS = TopicPartition("orders", 0)
PROCESSES = 8


@pytest.fixture
def url() -> str:
    return fresh_database_url()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        opened.declare([TopicConfig("orders", 2)])
        yield opened


@pytest.fixture
def database(url: str) -> Iterator[Database[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](url) as client:
        yield client.get_default_database()


def offsets(store: Store, first: int = 1) -> list[int]:
    return [event.offset for event in store.iterate(OffsetRange(*ORDERS, first, ALL))]


def run_together(code: str, url: str, count: int = PROCESSES) -> list[list[str]]:
    """What processes print that run the same code at once, each with its number."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, url, str(number)],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(count) as pool:
        said = list(pool.map(lambda each: each.communicate("go\n", timeout=120)[0], processes))
    assert [process.returncode for process in processes] == [0] * count
    return [lines.splitlines() for lines in said]


def test_collections_and_indexes_are_made_when_a_store_is_opened(
    url: str, database: Database[dict[str, Any]]
) -> None:
    open_store(url).close()
    assert {*database.list_collection_names()} == {*INDEXES, "meta"}
    found = {
        (name, tuple(index["key"]), index.get("unique", False))
        for name in INDEXES
        for index in database[name].list_indexes()
    }
    assert found >= {
        ("events", ("topic", "partition", "offset"), True),
        ("events", ("topic", "partition", "ts"), False),
        ("group_offsets", ("topic", "partition", "group"), True),
    }


def test_documents_have_the_fields_that_others_look_for(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    batch = new_batch("orders", [0], ['{"a": 1}'], attributes=['{"region":"eu"}'], keys=["k"])
    append(store, batch)
    (event,) = database["events"].find({}, {"_id": False})
    assert event == {
        "topic": "orders",
        "partition": 0,
        "offset": 1,
        "ts": START_MS,
        "id": batch.ids[0],
        "key": "k",
        "headers": {"region": "eu"},
        "schema_version": 1,
        "priority": 2,
        "payload": '{"a": 1}',
        "bytes": 0,
    }
    counter = database["counters"].find_one({"_id": "orders:0"})
    assert counter is not None
    assert counter["nextOffset"] == 2


def test_attributes_come_back_whatever_their_names(store: Store) -> None:
    texts = ['{"$ref":"a","$id":"b"}', '{"a.b":1,"":2}', "{}", '{"x":1.5,"y":9223372036854775807}']
    append(store, new_batch("orders", [0] * 4, attributes=texts))
    events = store.read(OffsetRange(*ORDERS, 1, 9), 9)
    assert [event.attributes_json for event in events] == texts


def test_a_groups_cursor_is_kept_where_others_look_for_it(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    clock = FakeClock()
    bus = open_bus(store, clock, group_config(max_events=4))
    store.append([new_batch("orders", [0] * 8)], clock())
    group = bus.group("readers")
    first, second = group.reserve()
    seen = []
    for delivery in (second, first):
        held = group.lease(delivery.id, reservation=delivery.reservation, worker="run")
        clock.advance(1_000)
        group.settle(held)
        own = database["group_offsets"].find_one({"_id": "orders:0:readers"})
        assert own is not None
        seen.append((own["frontier"], own["lastCommitted"], own["updatedTs"]))
    assert seen == [(9, 0, START_MS + 1_000), (9, 8, START_MS + 2_000)]


def test_a_publisher_waits_for_a_transaction_that_is_not_finished_and_readers_do_not(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    """Taking a number and inserting later would show its successor first."""
    append(store, new_batch("orders"))
    with database.client.start_session() as session, ThreadPoolExecutor() as pool:
        session.start_transaction()
        slow = {"topic": "orders", "partition": 0, "offset": 2, "ts": START_MS, "id": "slow"}
        slow |= {"schema_version": 1, "priority": 2, "payload": "0", "bytes": 2}
        step = {"$inc": {"nextOffset": 1}}
        database["counters"].update_one({"_id": "orders:0"}, step, session=session)
        database["events"].insert_one(slow, session=session)
        waiting = pool.submit(append, store, new_batch("orders"))
        assert offsets(store) == [1]
        assert store.bounds(["orders"])[ORDERS].end == 2
        assert not waiting.done()
        session.commit_transaction()
        assert waiting.result(30)[0].offset == 3
    assert offsets(store) == [1, 2, 3]


PUBLISHER = """
import sys
from dagster_bus.stores import open_store
from tests.support.builders import START_MS, append, new_batch
url, name = sys.argv[1:]
with open_store(url) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(12):
        payloads = [f'"{name}-{n}-{k}"' for k in range(5)]
        for at in append(store, new_batch("orders", [0, 0, 1, 0, 1], payloads), START_MS + n):
            print(at.partition, at.offset, at.id)
"""


def test_processes_that_publish_at_once_lose_nothing_and_leave_no_gap(
    store: Store, url: str
) -> None:
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run_together, PUBLISHER, url)
        while not running.done():
            seen = offsets(store)
            assert seen == list(range(1, len(seen) + 1)), "no reader sees a gap"
    said = [line for lines in running.result() for line in lines]
    assert len(said) == len(set(said)) == PROCESSES * 12 * 5
    found = []
    for partition, each in ((0, 3), (1, 2)):
        events = list(store.iterate(OffsetRange("orders", partition, 1, ALL)))
        assert [event.offset for event in events] == list(range(1, PROCESSES * 12 * each + 1))
        assert all(a.ts <= b.ts for a, b in pairwise(events))
        for name in range(PROCESSES):
            own = [e.payload for e in events if e.payload.startswith(f"{name}-")]
            in_order = sorted(own, key=lambda text: [int(part) for part in text.split("-")])
            assert own == in_order, "a publisher's own order is kept"
        found += [f"{event.partition} {event.offset} {event.id}" for event in events]
    assert sorted(found) == sorted(said)


REPEATER = """
import sys
from dagster_bus.stores import open_store
from tests.support.builders import START_MS, append, new_batch
url, name = sys.argv[1:]
with open_store(url) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(10):
        keys = [f"key-{n}", f"key-{n + 1}", None]
        own = (int(name) + n) % 2
        batch = new_batch("orders", [own] * 3, idempotency_keys=keys, dedup_ms=60_000)
        for key, at in zip(keys, append(store, batch)):
            print(key, at.partition, at.offset, at.id, at.duplicate)
"""


def test_of_processes_that_say_the_same_one_is_first_and_all_are_told_its_place(
    store: Store, url: str
) -> None:
    """Also if they publish to different partitions."""
    said = [line.split() for lines in run_together(REPEATER, url) for line in lines]
    places: dict[str, set[tuple[str, ...]]] = {}
    for key, *place, _ in said:
        places.setdefault(key, set()).add(tuple(place))
    unkeyed = places.pop("None")
    assert [len(of_key) for of_key in places.values()] == [1] * 11
    assert sum(duplicate == "False" for key, *_, duplicate in said if key != "None") == 11
    ends = store.bounds(["orders"]).values()
    assert sum(bounds.end - 1 for bounds in ends) == 11 + len(unkeyed) == 11 + PROCESSES * 10


OPENER = """
import sys
from dagster_bus.core.topic import TopicConfig
from dagster_bus.stores import open_store
print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.declare([TopicConfig("orders", 4)])
"""


def test_a_new_store_can_be_opened_and_declared_by_many_processes_at_once(url: str) -> None:
    run_together(OPENER, url, 12)
    with open_store(url, create=False) as store:
        assert store.topics() == [TopicConfig("orders", 4)]
        assert len(store.bounds(["orders"])) == 4


def test_expired_idempotency_keys_do_not_pile_up(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    for n in range(40):
        keys = [f"key-{n}-{k}" for k in range(500)]
        batch = new_batch("orders", [0] * 500, idempotency_keys=keys, dedup_ms=1_000)
        append(store, batch, START_MS + n * 1_000)
    assert database["idempotency"].count_documents({}) <= 2_000


def test_no_query_reads_more_than_it_needs(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    """The server writes down what each did: with a thousand events none looks at many of them, nor
    goes through a collection that grows."""
    clock = FakeClock()
    bus = open_bus(store, clock, group_config(max_events=10, max_inflight=3))
    for n in range(10):
        keys = [f"{n}-{k}" for k in range(100)]
        batch = new_batch("orders", [0, 1] * 50, idempotency_keys=keys, keys=keys, dedup_ms=9_999)
        append(store, batch, START_MS + n)
    database.command("profile", 2)
    append(store, new_batch("orders", [0, 1], idempotency_keys=["1-1", "new"], dedup_ms=9_999))
    store.bounds(["orders"])
    store.read(OffsetRange(*ORDERS, 400, 410), 5)
    store.offsets_at([ORDERS, TopicPartition("orders", 1)], START_MS + 5)
    store.offset_keeping(ORDERS, 200)
    group = bus.group("readers")
    one, two, three = group.reserve()
    group.settle(group.lease(one.id, reservation=1, worker="run"))
    for _ in range(3):
        group.fail(group.lease(two.id, reservation=two.reservation, worker="run"), ValueError("x"))
        clock.advance(1_000_000)
        two = next((each for each in group.reserve() if each.id == two.id), two)
    assert group.progress().tally.dead_lettered == 10
    assert len(bus.dead_letters("readers").list()) == 10
    assert bus.dead_letters("readers").counts()
    assert store.delivery(three.id)
    store.compact(ORDERS, 20, 0, 10)
    store.trim(ORDERS, 10, 5)
    database.command("profile", 0)
    done = list(database["system.profile"].find({"ns": {"$not": {"$regex": "system.profile"}}}))
    assert len(done) > 50
    assert [each for each in done if each.get("docsExamined", 0) > 40] == []
    growing = ("events", "deliveries", "dead_letters", "idempotency", "latest_keys", "open_ranges")
    scanned = {each["ns"] for each in done if "COLLSCAN" in each.get("planSummary", "")}
    assert not scanned & {f"{database.name}.{name}" for name in growing}


def test_the_place_of_a_time_does_not_depend_on_the_order_of_the_index(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    """A member that copied the log may have events of one time in another order."""
    append(store, new_batch("orders", [0] * 4))
    append(store, new_batch("orders", [0] * 5), START_MS + 5)
    same_time = list(database["events"].find({"ts": START_MS + 5}))
    database["events"].delete_many({"ts": START_MS + 5})
    database["events"].insert_many([same_time[at] for at in (3, 1, 4, 0, 2)])
    for after, offset in ((0, 1), (1, 5), (5, 5), (6, 10)):
        assert store.offsets_at([ORDERS], START_MS + after) == {ORDERS: offset}


def test_a_trim_that_was_broken_off_is_finished_by_the_next(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    append(store, new_batch("orders", [0] * 10))
    database["counters"].update_one({"_id": "orders:0"}, {"$set": {"firstOffset": 6}})
    assert store.trim(ORDERS, 4, 3) == 3
    assert store.trim(ORDERS, 4, 3) == 2
    assert store.trim(ORDERS, 4, 3) == 0
    assert offsets(store, 6) == [6, 7, 8, 9, 10]
    with pytest.raises(OffsetTrimmed):
        offsets(store, 5)


def test_a_compaction_that_was_broken_off_is_done_again(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    append(store, new_batch("orders", [0] * 6, keys=["a", "b", "a", "b", "a", "c"]))
    database["counters"].update_one({"_id": "orders:0"}, {"$set": {"compactedTo": 4}})
    assert store.compact(ORDERS, 5, 0, 100).removed == 2
    assert offsets(store) == [3, 4, 5, 6]
    assert store.compact(ORDERS, 7, 0, 100).removed == 1
    assert offsets(store) == [4, 5, 6]


def test_a_reader_is_told_if_the_log_is_trimmed_faster_than_it_reads(store: Store) -> None:
    for _ in range(3):
        append(store, new_batch("orders", [0] * 5_000))
    reader = store.iterate(OffsetRange(*ORDERS, 1, ALL))
    assert next(reader).offset == 1
    store.trim(ORDERS, 15_001, 20_000)
    with pytest.raises(OffsetTrimmed, match="begins with offset 15001"):
        list(reader)


WAKER = """
import sys
from dagster_bus.stores import open_store
from tests.support.builders import append, new_batch
import time
with open_store(sys.argv[1]) as store:
    for line in sys.stdin:
        append(store, new_batch("orders"))
        print(time.time(), flush=True)
"""


def test_a_listener_wakes_at_once_when_another_process_publishes(store: Store, url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAKER, url],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    delays = []
    with store.listen() as listener:
        for _ in range(20):
            while listener.wait(0.1):
                pass
            process.stdin.write("\n")
            process.stdin.flush()
            assert listener.wait(30)
            woken = time.time()
            delays.append(woken - float(process.stdout.readline()))
    process.communicate()
    assert min(delays) < 0.02


def test_spark_gets_the_same_events_as_everybody(store: Store, url: str) -> None:
    attributes = ['{"region":"eu"}', "{}", '{"region":"us"}', '{"region":"eu"}'] * 2_000
    keys = [None, "a", "é", "b"] * 2_000
    append(store, new_batch("orders", [0] * 8_000, attributes=attributes, keys=keys))
    span = OffsetRange(*ORDERS, 2, 7_999)
    rows = [row for batch in read_batches(url, span, EventFilter()) for row in batch.to_pylist()]
    events = store.read(span, 8_000)
    assert [(row["offset"], row["id"], row["key"], row["attributes"]) for row in rows] == [
        (event.offset, event.id, event.key, event.attributes_json) for event in events
    ]
    assert rows[0]["ts"].timestamp() * 1000 == START_MS
    european = read_batches(url, span, EventFilter({"region": "eu"}))
    assert sum(batch.num_rows for batch in european) == 3_998


def test_a_store_of_a_newer_version_is_left_alone(
    url: str, database: Database[dict[str, Any]]
) -> None:
    open_store(url).close()
    database["meta"].update_one({"_id": "schema"}, {"$set": {"version": 99}})
    newer = r"written by a newer dagster-bus \(schema 99, .*upgrade dagster-bus"
    with pytest.raises(StoreUnusable, match=newer):
        open_store(url)


def test_numbers_of_events_add_up_while_two_workers_settle_at_once(store: Store) -> None:
    """Each closes a range; the cursor stands where the later of both sees it."""
    clock = FakeClock()
    bus = open_bus(store, clock, group_config(max_events=1, max_inflight=40), partitions=2)
    bus.publish_many("orders", numbers(40))
    group = bus.group("readers")
    held = [group.lease(each.id, reservation=1, worker="run") for each in group.reserve()]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(group.settle, held))
    progress = group.progress()
    assert (progress.lag, progress.tally.processed) == (0, 40)
    assert sum(progress.cursors.values()) == 40


SERVER = """
import sys, threading, time
from pathlib import Path
from tools.mongodb import ReplicaSet

def start():
    print(ReplicaSet(Path(sys.argv[1])).url("bus"), flush=True)

threading.Thread(target=start).start()
time.sleep(60)
"""


def test_servers_for_tests_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """Not with the thread that did, and also if the process is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with MongoClient[dict[str, Any]](url) as client:
        assert client.admin.command("ping")["ok"]
        host, port = client.address or ("", 0)
    process.kill()
    process.communicate()
    wait_for("end of the server", lambda: not _listens(host, port), 30)


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
