"""Events on their way to Spark: with the query, as staged files, or through the data source. The
rows are the same each way, and nothing is left behind."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.event import Message
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import StoreError
from dagster_bus.spark import handover
from dagster_bus.spark.frames import read_events
from dagster_bus.spark.handover import Selection, handed_over
from dagster_bus.stores import open_store
from dagster_bus.stores.plain import plain_columns
from dagster_bus.stores.scratch import scratch_folder
from tests.support.dagster_dev import wait_for

COLUMNS = {
    "s": "string",
    "b": "boolean",
    "i": "int",
    "n": "bigint",
    "d": "double",
    "price": "decimal(12,2)",
    "day": "date",
    "at": "timestamp",
}
PLAIN: list[dict[str, Any]] = [
    {},
    {"s": 'é😀 "\\ \n', "b": True, "i": -7, "n": 2**62, "d": 0.1, "other": {"x": [1, None]}},
    {"s": None, "b": None, "i": None, "n": None, "d": None, "price": None, "day": None, "at": None},
    {"d": 3, "price": 1.5, "day": "2024-02-29", "at": "2026-11-18T01:02:03Z"},
    {"d": -0.0, "price": "-12.50", "at": "2026-11-18 23:59:59.000001Z", "n": -(2**63)},
    {"d": 1.7976931348623157e308, "price": 9999999999.99, "day": "1600-01-01"},
]
OTHERS: list[Any] = [
    {"s": 1.50},
    {"s": {"x": 1}},
    {"b": "true"},
    {"i": 2**31},
    {"n": 2**63},
    {"n": 1.0},
    {"d": "1.5"},
    {"price": "1.555"},
    {"price": "1,000.00"},
    {"price": 10**12},
    {"day": "2026-02-30"},
    {"day": "2026-1-2"},
    {"at": "2026-02-30T00:00:00Z"},
    {"at": "2026-11-18T01:02:03"},
    {"at": "2026-11-18T01:02:03+05:30"},
    {"at": "2026-11-18"},
    {"at": "1500-01-01T00:00:00Z"},
    {"at": 1},
    {"S": "another name", "n": 1},
    [],
    [{"n": 1}],
    "text",
    7,
    None,
]
WEB = EventFilter({"channel": "web"}, (), ("k",))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bus.db"


@pytest.fixture
def bus(url: str) -> Iterator[Bus]:
    store = open_store(url)
    topics = [TopicConfig("orders", 2)]
    store.declare(topics)
    with Bus(store, topics, [], system_clock) as opened:
        yield opened


@pytest.fixture
def no_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every event be too many to go with the query."""
    monkeypatch.setattr(handover, "FEW", 0)


def publish(bus: Bus) -> list[OffsetRange]:
    """Events that Arrow reads in one partition, and such that it must not read in the other."""
    for partition, payloads in enumerate((PLAIN, OTHERS)):
        for channel in ("web", "phone"):
            bus.publish_many(
                "orders",
                [
                    Message(each, key="k", attributes={"channel": channel}, partition=partition)
                    for each in payloads
                ],
            )
    return [
        OffsetRange("orders", 0, 1, 2 * len(PLAIN)),
        OffsetRange("orders", 1, 1, 2 * len(OTHERS)),
    ]


def rows(spark: SparkSession, asked: Selection, known: int | None) -> list[Row]:
    with handed_over(lambda: spark, asked) as events:
        assert events.known == known
        assert events.count() == events.frame.count()
        return sorted(events.frame.collect(), key=lambda row: row._event[2:5])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("with_corrupt", [False, True])
def test_rows_are_the_same_whichever_way_they_come(
    spark: SparkSession, bus: Bus, url: str, with_corrupt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = publish(bus)
    asked = Selection(url, ranges, WEB, COLUMNS, with_corrupt)
    few = rows(spark, asked, len(PLAIN) + len(OTHERS))
    monkeypatch.setattr(handover, "FEW", 0)
    staged = rows(spark, asked, len(PLAIN) + len(OTHERS))
    monkeypatch.setattr(handover, "_scratch_beside", lambda store: None)
    through_the_source = rows(spark, asked, None)
    assert [row.asDict(True) for row in staged] == [row.asDict(True) for row in through_the_source]
    assert [row.asDict(True) for row in few] == [row.asDict(True) for row in through_the_source]
    assert staged[0]._event.attributes == '{"channel":"web"}'
    assert ("_corrupt" in staged[0]) == with_corrupt


def test_where_arrow_reads_a_payload_it_says_what_spark_does(spark: SparkSession) -> None:
    texts = [json.dumps(each) for each in (*PLAIN, *OTHERS)]
    ddl = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    frame = spark.createDataFrame([(text,) for text in texts], "payload string")
    parsed = frame.select(F.from_json("payload", ddl).alias("it")).select("it.*").toArrow()
    plain = plain_columns(COLUMNS)
    assert plain
    for place, text in enumerate(texts):
        found = plain.read(pa.array([text]))
        assert (found is not None) == (place < len(PLAIN) or text.startswith('{"S"')), text
        if found is not None:
            expected = parsed.slice(place, 1).to_pydict()
            assert {name: each.to_pylist() for name, each in found.items()} == expected, text
    assert plain.read(pa.array(texts)) is None, "one of them is enough"
    assert plain_columns({**COLUMNS, "list": "array<int>"}) is None
    assert plain_columns({}) is None


@pytest.mark.usefixtures("no_few")
def test_events_of_topics_without_columns_are_staged_too(
    spark: SparkSession, bus: Bus, url: str
) -> None:
    with handed_over(lambda: spark, Selection(url, publish(bus), with_corrupt=True)) as events:
        payloads = events.frame.select("_event.payload", "_corrupt").collect()
    assert events.known == len(payloads) == 2 * len(PLAIN) + 2 * len(OTHERS)
    nobody = Selection(url, [OffsetRange("orders", 0, 1, 3)], EventFilter({"channel": "none"}))
    assert rows(spark, nobody, 0) == []


@pytest.mark.usefixtures("no_few")
def test_staged_files_are_gone_when_the_work_ends_well_or_badly(
    spark: SparkSession, bus: Bus, url: str, tmp_path: Path
) -> None:
    scratch = tmp_path / "bus.db-scratch"
    asked = Selection(url, publish(bus), columns=COLUMNS)
    with handed_over(lambda: spark, asked):
        assert len(list(scratch.rglob("*.parquet"))) == 2
    assert names(scratch) == ["lock"]
    with pytest.raises(ZeroDivisionError), handed_over(lambda: spark, asked):
        raise ZeroDivisionError
    assert names(scratch) == ["lock"]
    missing = Selection(url, [*asked.ranges, OffsetRange("orders", 0, 9, 99)], columns=COLUMNS)
    said = r"orders/0:9-99 has 4 of its 91 events in the store"
    with pytest.raises(StoreError, match=said), handed_over(lambda: spark, missing):
        raise AssertionError("nothing is handed over")
    assert names(scratch) == ["lock"]


@pytest.mark.usefixtures("no_few")
def test_events_are_staged_while_spark_starts(
    spark: SparkSession, bus: Bus, url: str, tmp_path: Path
) -> None:
    scratch = tmp_path / "bus.db-scratch"
    asked = Selection(url, publish(bus), columns=COLUMNS)

    def open_slowly() -> SparkSession:
        wait_for("staged files", lambda: len(list(scratch.rglob("*.parquet"))) == 2, seconds=30)
        return spark

    with handed_over(open_slowly, asked) as events:
        assert events.count() == 2 * len(PLAIN) + 2 * len(OTHERS)

    def fail() -> SparkSession:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), handed_over(fail, asked):
        raise AssertionError("nothing is handed over")
    assert names(scratch) == ["lock"]


def test_what_a_killed_process_has_staged_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from dagster_bus.stores.scratch import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'x').touch(); print(folder, flush=True); sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout
        left = Path(process.stdout.readline().strip())
        with scratch_folder(tmp_path) as own:
            assert left.exists(), "its process is still at work"
            assert own.exists()
        process.send_signal(signal.SIGKILL)
    assert (left / "x").exists()
    with scratch_folder(tmp_path) as own:
        assert not left.exists()
        assert names(tmp_path) == sorted(["lock", own.name, f"{own.name}.lock"])


STAGING = """
import sys
from dagster_bus.core.topic import OffsetRange
from dagster_bus.spark import handover
from dagster_bus.stores import staging

handover.FEW, staging.PIECE = 0, 1
asked = handover.Selection(sys.argv[1], [OffsetRange("orders", 0, 1, 20_000)])
with handover.handed_over(sys.stdin.read, asked):
    raise AssertionError("it is killed before")
"""


def test_a_killed_run_takes_along_the_processes_that_stage_for_it(
    bus: Bus, url: str, tmp_path: Path
) -> None:
    bus.publish_many("orders", [Message({"n": n}, partition=0) for n in range(20_000)])
    with subprocess.Popen([sys.executable, "-c", STAGING, url], stdin=subprocess.PIPE) as run:
        helpers = wait_for("processes that stage", lambda: children(run.pid))
        wait_for("files", lambda: list((tmp_path / "bus.db-scratch").rglob("*.parquet")))
        run.kill()
    wait_for("their end", lambda: not any(map(is_alive, helpers)), seconds=10)
    with scratch_folder(tmp_path / "bus.db-scratch") as own:
        assert names(tmp_path / "bus.db-scratch") == sorted(["lock", own.name, f"{own.name}.lock"])


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("no_few")
def test_what_compaction_has_taken_out_is_not_missed_and_what_retention_has_is(
    spark: SparkSession, bus: Bus, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.publish_many("orders", [Message({"n": n}, key="a", partition=0) for n in range(10)])
    span = OffsetRange("orders", 0, 1, 10)
    with open_store(url) as store:
        store.compact(TopicPartition("orders", 0), 9, 0, 100)
        asked = Selection(url, [span], columns={"n": "bigint"})
        assert [row.n for row in rows(spark, asked, 3)] == [7, 8, 9]
        store.trim(TopicPartition("orders", 0), 10, 100)
    for few in (0, 100):
        monkeypatch.setattr(handover, "FEW", few)
        with pytest.raises(Exception, match="10"), handed_over(lambda: spark, asked):
            raise AssertionError("nothing is handed over")


@pytest.mark.usefixtures("no_few")
def test_nothing_is_staged_for_a_store_that_is_no_file_or_has_an_unusual_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert handover._scratch_beside("mongodb://user:secret@host/bus") is None
    folder = tmp_path / "a[b]"
    folder.mkdir()
    url = f"sqlite:///{folder}/bus.db"
    with open_store(url) as store:
        store.declare([TopicConfig("orders")])
        with Bus(store, [TopicConfig("orders")], [], system_clock) as bus:
            bus.publish_many("orders", [{"n": 1}])
    asked = Selection(url, [OffsetRange("orders", 0, 1, 1)], columns={"n": "bigint"})
    assert [row.n for row in rows(spark, asked, None)] == [1]
    assert not (folder / "bus.db-scratch").exists()


def test_large_events_are_not_many_and_still_do_not_go_with_the_query(
    spark: SparkSession, bus: Bus, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(handover, "MAX_BATCH_BYTES", 1_000)
    bus.publish_many("orders", [Message({"s": "x" * 600}, partition=0) for _ in range(2)])
    asked = Selection(url, [OffsetRange("orders", 0, 1, 2)], columns={"s": "string"})
    with handed_over(lambda: spark, asked) as events:
        assert list((tmp_path / "bus.db-scratch").rglob("*.parquet"))
        assert events.known == 2
    direct = read_events(spark, url, asked.ranges, asked.wanted, asked.columns)
    assert direct.count() == 2
