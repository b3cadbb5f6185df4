"""What is special about the embedded store: its file, its plans, its errors."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import StoreError, StoreNotFound, StoreUnusable
from dagster_bus.stores import open_store
from dagster_bus.stores.sqlite import QUERIES
from dagster_bus.stores.sqlite_connection import load_migrations

GROWING = ("events", "deliveries", "dead_letters")
PROJECT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.mark.parametrize("name", QUERIES)
def test_no_statement_reads_a_table_that_grows_from_end_to_end(path: Path, name: str) -> None:
    open_store(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path)
    connection.create_function("wanted", 1, bool)
    query = QUERIES[name]
    words = set(query.split(":")[1:])
    named = {word.split()[0].split(",")[0].split(")")[0] for word in words if word[:1].isalpha()}
    given = dict.fromkeys(named) if named else (None,) * _questions(query)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", given)]
    connection.close()
    scans = [step for step in plan if step.startswith("SCAN") and step.split()[1] in GROWING]
    assert scans == []


def _questions(query: str) -> int:
    numbered = [int(number) for number in "1234" if f"?{number}" in query]
    return max(numbered) if numbered else query.count("?")


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


def test_the_schema_has_a_version_for_each_migration(path: Path) -> None:
    open_store(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(load_migrations()),)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_closed_store_says_so(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.topics()


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
