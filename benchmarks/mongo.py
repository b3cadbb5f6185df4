"""The log on MongoDB beside the driver's own calls on the same documents, with the same write
concern, on a replica set of three."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

from pymongo import ASCENDING, MongoClient, WriteConcern
from pymongo.collection import Collection

from benchmarks.events import TOPIC, new_folder, open_bus, payloads, remove, texts
from benchmarks.measuring import Comparison, Prepared, chunks, compare
from dagster_bus.core.event import uuid7s
from dagster_bus.core.topic import OffsetRange
from dagster_bus.stores import open_store
from tools.mongodb import ReplicaSet

DURABLE = WriteConcern("majority", j=True)
BATCH = 1_000


def comparisons(most: int) -> Iterator[Comparison]:
    folder = new_folder()
    try:
        with ReplicaSet(folder, members=3) as servers:
            yield compare(
                f"MongoDB: append, batches of {BATCH:,}",
                most,
                "raw MongoDB, insert_many",
                partial(_raw_append, servers, most),
                partial(_bus_append, servers, most),
                0.75,
                rounds=3,
            )
            yield _read(servers, most)
    finally:
        remove(folder)


def _read(servers: ReplicaSet, count: int) -> Comparison:
    url = _new_url(servers)
    with open_bus(url) as bus:
        for chunk in chunks(payloads(count), BATCH):
            bus.publish_many(TOPIC, chunk)
    return compare(
        "MongoDB: read in order",
        count,
        "raw MongoDB, find",
        partial(_raw_read, url, count),
        partial(_bus_read, url, count),
        0.5,
    )


def _new_url(servers: ReplicaSet) -> str:
    return servers.url(f"bench_{uuid4().hex[:8]}")


def _raw_append(servers: ReplicaSet, count: int) -> Prepared:
    """The same fields into a collection with the same indexes."""
    client, events = _collection(_new_url(servers))
    events.create_index(
        [("topic", ASCENDING), ("partition", ASCENDING), ("offset", ASCENDING)], unique=True
    )
    events.create_index([("topic", ASCENDING), ("partition", ASCENDING), ("ts", ASCENDING)])
    documents = [
        {
            "topic": TOPIC,
            "partition": 0,
            "offset": n,
            "ts": 1_795_000_000_000,
            "id": id,
            "schema_version": 1,
            "priority": 2,
            "payload": text,
            "bytes": 190 * n,
        }
        for n, (id, text) in enumerate(zip(uuid7s(1, count), texts(count), strict=True), 1)
    ]

    def work() -> None:
        for chunk in chunks(documents, BATCH):
            events.insert_many(chunk)

    return work, client.close


def _bus_append(servers: ReplicaSet, count: int) -> Prepared:
    bus = open_bus(_new_url(servers))
    events = payloads(count)

    def work() -> None:
        for chunk in chunks(events, BATCH):
            bus.publish_many(TOPIC, chunk)

    return work, bus.close


def _raw_read(url: str, count: int) -> Prepared:
    client, events = _collection(url)

    def work() -> None:
        found = events.find({"topic": TOPIC, "partition": 0}, batch_size=5_000).sort("offset")
        assert sum(1 for _ in found) == count

    return work, client.close


def _bus_read(url: str, count: int) -> Prepared:
    store = open_store(url)

    def work() -> None:
        assert sum(1 for _ in store.iterate(OffsetRange(TOPIC, 0, 1, count))) == count

    return work, store.close


def _collection(url: str) -> tuple[MongoClient[dict[str, Any]], Collection[dict[str, Any]]]:
    client: MongoClient[dict[str, Any]] = MongoClient(url)
    events = client.get_default_database().get_collection("events", write_concern=DURABLE)
    return client, events
