"""The embedded log beside raw SQLite, which writes and reads the same rows with the same care:
WAL, synchronous=FULL, one commit for each batch."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import persistqueue

from benchmarks.events import TOPIC, new_folder, open_bus, payloads, remove, texts
from benchmarks.measuring import Comparison, Prepared, chunks, compare
from dagster_bus.core.event import uuid7s
from dagster_bus.core.store import Store
from dagster_bus.core.topic import OffsetRange
from dagster_bus.stores import open_store
from dagster_bus.stores.sqlite.log import QUERIES
from dagster_bus.stores.sqlite.rows import position

THREADS = 32
GOALS = {1: 0.8, 1_000: 0.75}


def append_comparisons(most: int) -> Iterator[Comparison]:
    for batch in (1, 100, 1_000, 10_000):
        count = min(most, batch * 2_000)
        yield compare(
            f"append, batches of {batch:,}",
            count,
            "raw SQLite, executemany",
            partial(_raw_append, count, batch),
            partial(_bus_append, count, batch),
            GOALS.get(batch),
        )
    count = min(most, 2_000)
    yield compare(
        "append one by one",
        count,
        "persist-queue, put",
        partial(_peer_append, count),
        partial(_bus_append, count, 1),
    )
    count = min(most, 20_000)
    yield compare(
        f"append one by one, {THREADS} threads",
        count,
        "bus, one thread",
        partial(_bus_append, count, 1),
        partial(_bus_append_in_threads, count),
        5,
    )


def read_comparison(most: int) -> Comparison:
    folder = new_folder()
    url = f"sqlite:///{folder}/bus.db"
    with open_bus(url) as bus:
        for chunk in chunks(payloads(most), 10_000):
            bus.publish_many(TOPIC, chunk)
    try:
        return compare(
            "read in order",
            most,
            "raw SQLite, cursor",
            partial(raw_read, folder / "bus.db", most),
            partial(_bus_read, url, most),
            0.5,
        )
    finally:
        remove(folder)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _raw_append(count: int, batch: int) -> Prepared:
    folder = new_folder()
    open_store(f"sqlite:///{folder}/raw.db").close()  # the same tables
    connection = connect(folder / "raw.db")
    rows = [
        (
            position(1, n),
            1_795_000_000_000,
            190 * n,
            id,
            None,
            None,
            1,
            "{}",
            2,
            None,
            None,
            text,
            None,
        )
        for n, (id, text) in enumerate(zip(uuid7s(1, count), texts(count), strict=True), 1)
    ]

    def work() -> None:
        for chunk in chunks(rows, batch):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(QUERIES["insert_event"], chunk)
            connection.execute("COMMIT")

    return work, closing(connection.close, folder)


def _bus_append(count: int, batch: int) -> Prepared:
    folder = new_folder()
    bus = open_bus(f"sqlite:///{folder}/bus.db")
    events = payloads(count)

    def work() -> None:
        for chunk in chunks(events, batch):
            bus.publish_many(TOPIC, chunk)

    return work, closing(bus.close, folder)


def _bus_append_in_threads(count: int) -> Prepared:
    folder = new_folder()
    bus = open_bus(f"sqlite:///{folder}/bus.db")
    shares = list(chunks(payloads(count), -(-count // THREADS)))

    def publish(share: list[dict[str, str]]) -> None:
        for payload in share:
            bus.publish(TOPIC, payload)

    def work() -> None:
        threads = [threading.Thread(target=publish, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return work, closing(bus.close, folder)


def _peer_append(count: int) -> Prepared:
    folder = new_folder()
    queue = persistqueue.SQLiteQueue(str(folder), auto_commit=True)
    events = payloads(count)

    def work() -> None:
        for payload in events:
            queue.put(payload)

    return work, closing(queue.close, folder)


def raw_read(path: Path, count: int) -> Prepared:
    """All columns of an event, by the shortest statement."""
    connection = connect(path)
    query = """
        SELECT id, ts, 'orders', 0, pos & 0xFFFFFFFFFF, key, source, schema_version, attributes,
               priority, idempotency_key, ttl_s, payload, payload_sha256
        FROM events ORDER BY pos
    """

    def work() -> None:
        assert sum(1 for _ in connection.execute(query)) == count

    return work, connection.close


def _bus_read(url: str, count: int) -> Prepared:
    store: Store = open_store(url)

    def work() -> None:
        span = OffsetRange(TOPIC, 0, 1, count)
        assert sum(1 for _ in store.iterate(span)) == count

    return work, store.close


def closing(close: Callable[[], None], folder: Path) -> Callable[[], None]:
    def tidy() -> None:
        close()
        remove(folder)

    return tidy
