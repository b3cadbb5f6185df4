"""A MongoDB store of the first version, and what groups and retention may do at the same time."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import DeadLetters
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicConfig, TopicPartition
from dagster_bus.errors import OffsetTrimmed
from dagster_bus.stores import open_store
from tests.support.builders import START_MS, FakeClock, append, group_config, new_batch

AT = TopicPartition("orders", 0)
LETTERS = 2_500
RACE_S = 2.0


@pytest.fixture
def database(mongo_database_url: str) -> Iterator[Database[dict[str, Any]]]:
    with open_store(mongo_database_url) as store:
        store.declare([TopicConfig("orders")])
        append(store, new_batch("orders", [0] * 10))
    with MongoClient[dict[str, Any]](mongo_database_url) as client:
        yield client.get_default_database()


def make_old(database: Database[dict[str, Any]]) -> None:
    """What the first version would have left: letters without a state, and nobody counts them."""
    database["letter_counts"].drop()
    database["dead_letters"].drop_indexes()
    database["deliveries"].insert_one(
        {
            "_id": "old", "group": "readers", "window": "2026-11-18T01",
            "ranges": [["orders", 0, 1, 5]], "size": 5, "state": "done",
            "outcome": "dead_lettered", "attempt": 1, "reservation": 1, "token": 1,
            "dueMs": START_MS, "worker": None, "errors": "[]", "createdMs": START_MS, "version": 3,
        }
    )  # fmt: skip
    event = database["events"].find_one({}, {"_id": False, "bytes": False})
    database["dead_letters"].insert_many(
        {
            "_id": number, "group": "readers", "delivery": "old", "fingerprint": f"f{number % 3}",
            "diedMs": START_MS, "event": event,
        }
        for number in range(1, LETTERS + 1)
    )  # fmt: skip
    database["meta"].update_one({"_id": "dead_letters"}, {"$set": {"last": LETTERS}})
    database["meta"].update_one({"_id": "schema"}, {"$set": {"version": 1}})


def test_a_store_of_the_first_version_is_brought_up_to_date_by_many_at_once(
    database: Database[dict[str, Any]], mongo_database_url: str
) -> None:
    make_old(database)

    def look(_: int) -> tuple[dict[str, int], int]:
        with open_store(mongo_database_url) as store:
            letters = DeadLetters("readers", store, FakeClock())
            return letters.counts(), len(letters.list(limit=10_000))

    with ThreadPoolExecutor(6) as openers:
        found = list(openers.map(look, range(6)))
    assert found == [({"f1": 834, "f0": 833, "f2": 833}, LETTERS)] * 6
    with open_store(mongo_database_url) as store:
        letters = DeadLetters("readers", store, FakeClock())
        list(letters.redrive())
        group = Group(group_config(max_events=LETTERS, max_inflight=9), store, FakeClock())
        assert sum(each.size for each in group.reserve()) >= 1
        assert letters.counts() == {}


def test_retention_takes_no_event_that_a_group_is_just_taking(
    database: Database[dict[str, Any]], mongo_database_url: str
) -> None:
    """The groups are not known to whoever trims."""
    lost: list[str] = []
    stop = threading.Event()
    with open_store(mongo_database_url) as store:
        append(store, new_batch("orders", [0] * 2_000))
        configs = [GroupConfig(f"g{n}", ("orders",), max_events=3) for n in range(3)]
        trimmed = 0
        with ThreadPoolExecutor(3) as threads:
            working = [threads.submit(_work, store, each, stop, lost) for each in configs]
            end_s = time.monotonic() + RACE_S
            while time.monotonic() < end_s:
                first = store.bounds(["orders"])[AT].first
                trimmed += store.trim(AT, min(first + 5, 2_000), 100)
            stop.set()
            assert all(each.result() > 0 for each in working)
    assert trimmed > 0
    assert lost == []


def _work(store: Store, config: GroupConfig, stop: threading.Event, lost: list[str]) -> int:
    group = Group(config, store, FakeClock())
    taken = 0
    while not stop.is_set():
        for delivery in group.reserve():
            try:
                found = sum(1 for _ in group.events(delivery))
            except OffsetTrimmed as gone:
                lost.append(str(gone))
                continue
            if found != delivery.size:
                lost.append(f"{found} of {delivery.size}")
            taken += 1
            group.settle(group.lease(delivery.id, reservation=delivery.reservation, worker="w"))
    return taken
