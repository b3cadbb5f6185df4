"""Answers that are lost, and primaries that die: what was acknowledged is there, once."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from dagster_bus.core.bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.event import Published
from dagster_bus.core.store import Store
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import StoreUnavailable, StoreUnusable
from dagster_bus.stores import open_store
from dagster_bus.stores.mongo import connection as mongo_connection
from tests.support.builders import FakeClock, append, group_config, new_batch, numbers, open_bus
from tests.support.dagster_dev import wait_for
from tools.mongodb import ReplicaSet

PROJECT = Path(__file__).parents[2]
ALL = 1 << 39
ORDERS = TopicPartition("orders", 0)
WRITE_CONCERN_FAILED = 64
NO_SUCH_TRANSACTION = 251
OUT_OF_DISK_SPACE = 14031
PUBLISHERS = 4
KILLS = 2


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """A server that can be told to fail."""
    options = ("--setParameter", "enableTestCommands=1")
    with ReplicaSet(tmp_path_factory.mktemp("fragile"), options=options) as replica_set:
        yield replica_set


@pytest.fixture
def store(fragile: ReplicaSet, request: pytest.FixtureRequest) -> Iterator[Store]:
    with open_store(fragile.url(f"bus-{abs(hash(request.node.name))}")) as opened:
        opened.declare([TopicConfig("orders", 1)])
        yield opened


@contextmanager
def failing(replica_set: ReplicaSet, command: str, times: int | None, **how: Any) -> Iterator[None]:
    """Let a command fail: so many times, or always."""
    with MongoClient[dict[str, Any]](replica_set.url("admin")) as client:
        mode: Any = "alwaysOn" if times is None else {"times": times}
        data = {"failCommands": [command], **how}
        client.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)
        try:
            yield
        finally:
            client.admin.command("configureFailPoint", "failCommand", mode="off")


def ids(store: Store) -> list[str]:
    return [event.id for event in store.iterate(OffsetRange(*ORDERS, 1, ALL))]


BROKEN = {"closeConnection": True}

LOST = [
    pytest.param({"times": 1, **BROKEN}, id="the connection broke"),
    pytest.param({"times": 5, **BROKEN}, id="it broke again and again"),
    pytest.param(
        {"times": 3, "writeConcernError": {"code": WRITE_CONCERN_FAILED, "errmsg": "timed out"}},
        id="it was committed, and not confirmed",
    ),
    pytest.param(
        {
            "times": 2,
            "errorCode": NO_SUCH_TRANSACTION,
            "errorLabels": ["TransientTransactionError"],
        },
        id="the next primary does not know of it",
    ),
]


@pytest.mark.parametrize("how", LOST)
def test_an_append_whose_answer_was_lost_is_there_once(
    fragile: ReplicaSet, store: Store, how: dict[str, Any]
) -> None:
    append(store, new_batch("orders"))
    batch = new_batch("orders", [0, 0], idempotency_keys=["a", "b"], dedup_ms=60_000)
    with failing(fragile, "commitTransaction", **how):
        published = append(store, batch)
    assert [(at.offset, at.duplicate) for at in published] == [(2, False), (3, False)]
    assert ids(store)[1:] == batch.ids
    assert append(store, new_batch("orders"))[0].offset == 4


@pytest.mark.parametrize("how", LOST)
def test_a_worker_whose_settling_was_not_answered_has_settled(
    fragile: ReplicaSet, store: Store, how: dict[str, Any]
) -> None:
    bus = open_bus(store, FakeClock(), partitions=1)
    bus.publish_many("orders", numbers(10))
    group = bus.group("readers")
    (delivery,) = group.reserve()
    held = group.lease(delivery.id, reservation=1, worker="run")
    with failing(fragile, "commitTransaction", **how):
        group.settle(held)
    assert group.progress().tally.processed == 10
    assert group.progress().lag == 0


def test_if_nobody_can_say_whether_it_was_kept_that_is_said(
    fragile: ReplicaSet, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, failing(fragile, "commitTransaction", None, **BROKEN):
        patch.setattr(mongo_connection, "OPERATION_S", 1.0)
        with pytest.raises(StoreUnavailable, match="not known whether the last write was kept"):
            append(store, new_batch("orders"))
    assert append(store, new_batch("orders"))[0].offset == 1, "it was not, this time"


KILLED = """
import sys, time
from dagster_bus.stores.mongo.store import MongoStore
from dagster_bus.stores.mongo.appending import append
from tests.support.builders import START_MS, new_batch

def work(session):
    append(connection.database, session, [new_batch("orders")], START_MS)
    print("inside", flush=True)
    time.sleep(60)

connection = MongoStore(sys.argv[1])._connection
connection.transact(work)
"""


def test_a_publisher_killed_in_the_middle_holds_the_others_up_for_seconds_only(
    fragile: ReplicaSet,
) -> None:
    url = fragile.url("killed")
    with open_store(url) as store:
        store.declare([TopicConfig("orders", 1)])
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, url], cwd=PROJECT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.kill()
        process.communicate()
        assert append(store, new_batch("orders"))[0].offset == 1
        assert len(ids(store)) == 1


def test_reading_goes_on_where_a_cursor_was_lost(fragile: ReplicaSet, store: Store) -> None:
    for _ in range(3):
        append(store, new_batch("orders", [0] * 5_000))
    with failing(fragile, "getMore", 1, **BROKEN):
        offsets = [event.offset for event in store.iterate(OffsetRange(*ORDERS, 1, ALL))]
    assert offsets == list(range(1, 15_001))


def test_listeners_hear_of_appends_also_without_a_change_stream(
    fragile: ReplicaSet, store: Store
) -> None:
    with failing(fragile, "getMore", None, errorCode=OUT_OF_DISK_SPACE), store.listen() as listener:
        for _ in range(5):
            while listener.wait(0.05):
                pass
            append(store, new_batch("orders"))
            assert listener.wait(1)


def test_a_full_disk_is_said_so(fragile: ReplicaSet, store: Store) -> None:
    with (
        failing(fragile, "insert", None, errorCode=OUT_OF_DISK_SPACE),
        pytest.raises(StoreUnusable, match="the disk is full"),
    ):
        append(store, new_batch("orders"))
    assert ids(store) == []


class Publisher(threading.Thread):
    """Publishes until it is stopped, and keeps what was acknowledged."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.acknowledged: list[Published] = []
        self.error: BaseException | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            with open_store(self.url) as store:
                while not self.stopped.is_set():
                    batch = new_batch("orders", [0, 1, 0])
                    self.acknowledged += append(store, batch, system_clock())
        except Exception as error:  # noqa: BLE001  (it is looked at where the thread is joined)
            self.error = error


class Reader(threading.Thread):
    """Follows the topic, and keeps what it saw of one partition."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(daemon=True)
        self.bus = bus
        self.seen: list[tuple[int, str]] = []
        self.error: BaseException | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            going = self.bus.tail("orders", follow=True, go_on=lambda: not self.stopped.is_set())
            for event in going:
                if event.partition == 0:
                    self.seen.append((event.offset, event.id))
        except Exception as error:  # noqa: BLE001  (it is looked at where the thread is joined)
            self.error = error


def stop(*threads: Publisher | Reader) -> None:
    for thread in threads:
        thread.stopped.set()
    for thread in threads:
        thread.join(60)
    assert [thread.error for thread in threads] == [None] * len(threads)


def work(bus: Bus) -> int:
    """Settle what can be reserved now; returns how many deliveries that were."""
    group = bus.group("readers")
    reserved = group.reserve()
    for delivery in reserved:
        held = group.lease(delivery.id, reservation=delivery.reservation, worker="run")
        group.settle(held)
    return len(reserved)


def work_while_each_publishes(bus: Bus, publishers: Sequence[Publisher], batches: int) -> None:
    wanted = [len(each.acknowledged) + 3 * batches for each in publishers]
    deadline = time.monotonic() + 60
    while any(len(p.acknowledged) < n for p, n in zip(publishers, wanted, strict=True)):
        assert [each.error for each in publishers] == [None] * len(publishers)
        assert time.monotonic() < deadline
        work(bus)


def test_publishers_readers_and_workers_carry_on_when_primaries_die(tmp_path: Path) -> None:
    topic = TopicConfig("orders", 2)
    with (
        ReplicaSet(tmp_path, members=3) as replica_set,
        open_store(replica_set.url("bus")) as store,
    ):
        store.declare([topic])
        bus = Bus(store, [topic], [group_config(max_events=200, lease_ms=60_000)])
        publishers = [Publisher(replica_set.url("bus")) for _ in range(PUBLISHERS)]
        reader = Reader(bus)
        for thread in (reader, *publishers):
            thread.start()
        for _ in range(KILLS):
            work_while_each_publishes(bus, publishers, 10)
            primary = replica_set.wait_for_primary()
            replica_set.kill(primary)
            work_while_each_publishes(bus, publishers, 10)
            replica_set.start(primary)
        stop(*publishers)
        logs = [list(store.iterate(OffsetRange(*at, 1, ALL))) for at in store.bounds(["orders"])]
        wait_for("last event", lambda: len(reader.seen) >= len(logs[0]), 30)
        stop(reader)
        while work(bus):
            pass
        progress = bus.group("readers").progress()
    for events in logs:
        assert [event.offset for event in events] == list(range(1, len(events) + 1))
        assert all(earlier.ts <= later.ts for earlier, later in pairwise(events))
    kept = [(e.partition, e.offset, e.id, e.ts) for events in logs for e in events]
    said = [(at.partition, at.offset, at.id, at.ts) for p in publishers for at in p.acknowledged]
    assert sorted(kept) == sorted(said), "what was acknowledged is there once, and nothing else"
    assert reader.seen == [(event.offset, event.id) for event in logs[0]]
    assert (progress.lag, progress.tally.processed) == (0, len(said))
