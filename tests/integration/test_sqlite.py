"""What is special about the embedded store: its file, its plans, its errors."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.store import Tally
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import StoreError, StoreNotFound, StoreUnavailable, StoreUnusable
from dagster_bus.stores import open_store
from dagster_bus.stores.sqlite import connection as sqlite_connection
from dagster_bus.stores.sqlite import letters
from dagster_bus.stores.sqlite.connection import load_migrations
from dagster_bus.stores.sqlite.store import QUERIES
from tests.support.builders import START_MS, FakeClock, append, group_config, new_batch, open_bus

GROWING = ("events", "deliveries", "dead_letters", "idempotency", "latest_keys", "newest")
PROJECT = Path(__file__).parents[2]
VERSION_1 = PROJECT / "tests" / "data" / "store-version-1.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.mark.parametrize(
    ("name", "asked_for"),
    [
        *((name, ()) for name in QUERIES),
        ("dead_letters", ("state",)),
        ("dead_letters", ("state", "fingerprint")),
        ("dead_letters", ("state", "topic")),
        ("dead_letters", ("ids",)),
    ],
)
def test_no_statement_reads_a_table_that_grows_from_end_to_end(
    path: Path, name: str, asked_for: tuple[str, ...]
) -> None:
    open_store(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path)
    connection.create_function("fate", 4, lambda *_: "dead")
    query = QUERIES[name]
    if name == "dead_letters":
        query = query.format(condition=letters.condition(asked_for))
    words = set(query.split(":")[1:])
    named = {word.split()[0].split(",")[0].split(")")[0] for word in words if word[:1].isalpha()}
    given = dict.fromkeys(named) if named else (None,) * _questions(query)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", given)]
    connection.close()
    scans = [step for step in plan if step.startswith("SCAN") and step.split()[1] in GROWING]
    assert scans == []
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert name != "dead_letters" or sorts == [] or asked_for == ("ids",)


def _questions(query: str) -> int:
    numbered = [int(number) for number in "12345" if f"?{number}" in query]
    return max(numbered) if numbered else query.count("?")


def test_a_store_of_the_first_version_still_opens_with_all_it_holds(path: Path) -> None:
    """The file was written by that version: 10 events, a delivery settled, one dead, one open."""
    shutil.copy(VERSION_1, path)
    with open_store(f"sqlite:///{path}", create=False) as store:
        assert store.topics() == [TopicConfig("orders", 2)]
        events = [e for p in (0, 1) for e in store.iterate(OffsetRange("orders", p, 1, 99))]
        assert sorted(event.payload["n"] for event in events) == list(range(10))
        assert {event.attributes_json for event in events} == {'{"channel":"web"}'}
        sizes = [len(f"{e.key}{e.attributes_json}{e.payload_json}") for e in events]
        bounds = store.bounds(["orders"])
        assert sum(each.appended_bytes for each in bounds.values()) == sum(sizes)
        clock = FakeClock(START_MS + 600_000)
        bus = open_bus(store, clock, group_config(max_events=4))
        group = bus.group("readers")
        assert group.progress().tally == Tally(processed=4, dead_lettered=4)
        for each in group.reserve():
            group.settle(group.lease(each.id, reservation=each.reservation, worker="run"))
        assert group.progress().lag == 0
        at = bus.publish("orders", {"n": 10}, key="k1")
        before = bounds[TopicPartition("orders", at.partition)]
        assert (at.offset, at.ts) == (before.end, clock())
    with open_store(f"sqlite:///{path}", create=False) as store:
        assert store.topics()[0].partitions == 2


def test_a_store_that_is_not_there_is_said_so(path: Path) -> None:
    with pytest.raises(StoreNotFound, match="there is no store at"):
        open_store(f"sqlite:///{path}", create=False)
    assert not path.exists()


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    open_store(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(
        StoreUnusable, match=r"written by a newer dagster-bus .*upgrade dagster-bus"
    ):
        open_store(f"sqlite:///{path}")


def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    path.write_text("these are my notes, and not a database at all. " * 100)
    with pytest.raises(StoreUnusable, match="it is not a SQLite database"):
        open_store(f"sqlite:///{path}")
    assert path.read_text().startswith("these are my notes")


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreUnusable, match="is a SQLite database of another program"):
        open_store(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    connection.close()


def test_a_damaged_file_is_told(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:
        store.declare([TopicConfig("orders")])
        append(store, new_batch("orders", [0] * 5_000, ['"' + "x" * 100 + '"'] * 5_000))
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(size // 4096 // 2, size // 4096):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    with (
        open_store(f"sqlite:///{path}") as store,
        pytest.raises(StoreUnusable, match="it is damaged; restore it from a backup"),
    ):
        list(store.iterate(OffsetRange("orders", 0, 1, 5_000)))


def test_a_full_disk_is_told_and_nothing_is_written(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:
        store.declare([TopicConfig("orders")])
        append(store, new_batch("orders"))
        writer = store._file._writer.connection  # type: ignore[attr-defined]
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(StoreUnusable, match="the disk is full"):
            append(store, new_batch("orders", [0] * 500, ['"' + "x" * 500 + '"'] * 500))
        assert len(list(store.iterate(OffsetRange("orders", 0, 1, 999)))) == 1
        assert append(store, new_batch("orders"))[0].offset == 2


def test_a_store_that_somebody_locks_is_told_in_bounded_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_S", 0.2)
    with open_store(f"sqlite:///{path}") as store:
        store.declare([TopicConfig("orders")])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="is locked: another process has been writing"):
            append(store, new_batch("orders"))
        assert store.bounds(["orders"])[TopicPartition("orders", 0)].end == 1, "readers read on"
        other.execute("ROLLBACK")
        other.close()
        assert append(store, new_batch("orders"))[0].offset == 1


def test_a_store_that_may_not_be_written_is_told() -> None:
    with TemporaryDirectory() as folder:  # in a place that everybody can reach
        path = Path(folder) / "bus.db"
        with open_store(f"sqlite:///{path}") as store:
            store.declare([TopicConfig("orders")])

        def publish() -> None:
            with open_store(f"sqlite:///{path}") as store:
                append(store, new_batch("orders"))

        path.chmod(0o444)
        path.parent.chmod(0o777)
        assert "it cannot be written to; check its permissions" in said_by_nobody(publish)
        path.parent.chmod(0o555)
        assert "it cannot be written to; check its permissions" in said_by_nobody(publish)
        path.parent.chmod(0o755)


def said_by_nobody(step: Callable[[], None]) -> str:
    """What a step says in a process without any rights of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        text = "done"
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            step()
        except StoreError as error:
            text = str(error)
        except BaseException as error:  # noqa: BLE001
            text = f"unexpected: {error!r}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def test_the_schema_has_a_version_for_each_migration(path: Path) -> None:
    open_store(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(load_migrations()),)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_commits_survive_a_power_cut(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:
        writer = store._file._writer.connection  # type: ignore[attr-defined]
        configs = [group_config(), group_config(name="quick", lasting=False)]
        bus = open_bus(store, FakeClock(), *configs)
        for _ in range(2):
            bus.publish("orders", {})
            assert writer.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
            for name, mode in (("quick", 1), ("readers", 2)):
                (held,) = bus.group(name).take("run")
                bus.group(name).settle(held)
                assert writer.execute("PRAGMA synchronous").fetchone() == (mode,), name


def test_a_closed_store_says_so(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.topics()


def test_idempotency_keys_are_forgotten_so_that_their_table_stays_small(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:
        store.declare([TopicConfig("orders")])
        for n in range(100):
            keys = [f"{n}-{m}" for m in range(50)]
            batch = new_batch("orders", [0] * 50, idempotency_keys=keys, dedup_ms=1_000)
            append(store, batch, START_MS + n * 100)
        writer = store._file._writer.connection  # type: ignore[attr-defined]
        (count,) = writer.execute("SELECT count(*) FROM idempotency").fetchone()
    assert count <= 11 * 50


def test_readers_do_not_wait_for_a_writer_in_the_same_process(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:
        store.declare([TopicConfig("orders")])
        append(store, new_batch("orders"))
        read: list[int] = []

        def write(_: sqlite3.Connection) -> None:
            reader = threading.Thread(
                target=lambda: read.append(len(store.read(OffsetRange("orders", 0, 1, 9), 9)))
            )
            reader.start()
            reader.join(30)

        store._file.write(write)  # type: ignore[attr-defined]
        assert read == [1]


def test_topics_in_memory_end_with_their_bus(path: Path) -> None:
    from dagster_bus.stores import open_memory_store

    config = TopicConfig("signals", 2, durable=False)
    memory = open_memory_store()
    memory.declare([config])
    with open_store(f"sqlite:///{path}") as store:
        bus = Bus(store, [config], clock=FakeClock(), memory=memory)
        bus.publish_many("signals", range(10))
        assert sorted(event.payload for event in bus.tail("signals")) == list(range(10))
        with memory.listen() as listener:
            bus.publish("signals", 10)
            assert listener.wait(10)
            assert not listener.wait(0.05)
        assert store.topics() == []
        bus.close()


def test_topics_in_memory_are_bounded(path: Path) -> None:
    from dagster_bus.stores import open_memory_store

    config = TopicConfig("signals", durable=False, retain_bytes=10_000)
    memory = open_memory_store()
    memory.declare([config])
    with open_store(f"sqlite:///{path}") as store:
        bus = Bus(store, [config], clock=FakeClock(), memory=memory)
        for _ in range(50):
            bus.publish_many("signals", ["x" * 96] * 100)
        bounds = bus.bounds("signals")[TopicPartition("signals", 0)]
        assert bounds.end == 5_001
        assert bounds.end - bounds.first <= 100 + 1_000
        bus.close()


def test_a_new_store_can_be_opened_by_many_processes_at_once(path: Path) -> None:
    code = (
        "import sys; from dagster_bus.stores import open_store\n"
        "sys.stdin.read()\n"
        "open_store('sqlite:///' + sys.argv[1]).close()"
    )
    for attempt in range(4):
        file = path.with_name(f"bus-{attempt}.db")
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(file)], cwd=PROJECT, stdin=subprocess.PIPE
            )
            for _ in range(12)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait() for process in processes] == [0] * 12
    with open_store(f"sqlite:///{file}") as store:
        store.declare([TopicConfig("orders", 1)])
