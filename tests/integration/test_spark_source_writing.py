"""DataFrames become events: what is published, and that nothing is published twice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.bus import Bus
from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import InvalidPayloadError, UsageError
from dagster_bus.spark import register
from dagster_bus.spark.source.rows import Layout
from dagster_bus.spark.source.writing import BATCH_ROWS, Target, publish
from dagster_bus.stores import open_store
from tests.support.spark_source import open_bus, published, read


@pytest.fixture
def bus(store_url: str) -> Iterator[Bus]:
    with open_bus(store_url) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def write(rows: DataFrame, url: str, **options: Any) -> None:
    given = {"store": url, "topic": "out"} | options
    rows.write.format("dagster_bus").options(**given).mode("append").save()


def test_columns_become_the_payload_and_its_envelope(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    rows = spark.sql("""
        SELECT 7L AS n, 1.50BD AS price, timestamp'2026-11-18 01:02:03Z' AS at,
               date'2026-12-01' AS day, array('a', null) AS tags, map('x', 1) AS seen,
               named_struct('a', 1) AS to, X'6162' AS raw, CAST(null AS string) AS nothing,
               'k' AS customer, map('region', 'eu') AS attributes, 'high' AS priority
    """)
    write(rows, store_url, keyColumn="customer", source="spark")
    (event,) = [event for at in bus.bounds("out") for event in bus.read("out", at.partition)]
    assert event.payload == {
        "n": 7, "price": "1.50", "at": "2026-11-18T01:02:03Z", "day": "2026-12-01",
        "tags": ["a", None], "seen": {"x": 1}, "to": {"a": 1}, "raw": "YWI=",
    }  # fmt: skip
    assert (event.key, event.source, event.attributes) == ("k", "spark", {"region": "eu"})
    assert event.priority == 1


def test_events_can_be_copied_from_topic_to_topic(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    bus.publish("orders.paid", {"n": 1}, key="k", attributes={"vip": True, "tier": 2})
    bus.publish("orders.paid", None, key="gone", priority="low")
    write(read(spark, store_url, topics="orders.paid"), store_url)
    events = [event for at in bus.bounds("out") for event in bus.read("out", at.partition)]
    assert sorted((event.key, event.payload_json, event.priority) for event in events) == [
        ("gone", "null", 3), ("k", '{"n":1}', 2),
    ]  # fmt: skip
    assert {event.attributes_json for event in events} == {'{"vip":true,"tier":2}', "{}"}


def test_a_job_that_is_repeated_by_its_name_publishes_nothing_twice(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    """Also if its rows come in another order and in other tasks."""
    rows = spark.range(50).selectExpr("id AS n", "CAST(id % 5 AS string) AS key")
    write(rows.repartition(3), store_url, writeId="delivery-1")
    assert published(bus) == list(range(50))
    write(rows.orderBy(F.desc("n")).coalesce(1), store_url, writeId="delivery-1")
    assert published(bus) == list(range(50))
    write(rows.limit(5), store_url, writeId="delivery-2")
    assert len(published(bus)) == 55


def test_equal_rows_are_so_many_events_and_stay_so_many(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    rows = spark.range(10).selectExpr("id % 2 AS n")
    write(rows, store_url)
    assert published(bus) == [0] * 5 + [1] * 5
    for _ in range(2):
        write(rows.repartition("n"), store_url, writeId="once")
    assert published(bus) == [0] * 10 + [1] * 10


def test_equal_rows_that_tasks_cannot_tell_apart_are_refused_and_can_be_added(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    rows = spark.range(8).selectExpr("1 AS n").repartition(2)
    with pytest.raises(Exception, match=r"1 rows equal rows of other tasks.*repartition"):
        write(rows, store_url, writeId="once")
    write(rows.repartition(2, "n"), store_url, writeId="once")
    assert published(bus) == [1] * 8


def test_a_column_of_idempotency_keys_is_taken_as_it_is(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    rows = spark.range(6).selectExpr("id AS n", "CAST(id % 3 AS string) AS request")
    write(rows.coalesce(1), store_url, idempotencyKeyColumn="request")
    assert published(bus) == [0, 1, 2]


def test_a_bad_row_fails_the_job_with_what_is_wrong_with_it(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    texts = spark.createDataFrame([("{}",), ("{",)], "payload string").coalesce(1)
    with pytest.raises(Exception, match="row 2 of its task: the payload is not JSON: Expecting"):
        write(texts, store_url)
    with pytest.raises(Exception, match="row 1 of its task: priority is one of critical, high"):
        write(spark.sql("SELECT '{}' AS payload, 'soon' AS priority"), store_url)
    with pytest.raises(Exception, match="topic 'nowhere' is not declared"):
        write(spark.range(1), store_url, topic="nowhere")
    assert published_count(bus) == 0


def published_count(bus: Bus) -> int:
    return sum(each.end - 1 for each in bus.bounds("out").values())


def test_a_task_that_fails_midway_and_runs_again_publishes_the_rest(
    bus: Bus, store_url: str
) -> None:
    """The second attempt gets its rows in another order."""
    target = Target(store_url, "out", Layout(None, ("n",)), None, None)
    rows = pa.RecordBatch.from_pydict({"n": [n // 2 for n in range(2 * BATCH_ROWS)]})

    def dies() -> Iterator[pa.RecordBatch]:
        yield rows.slice(0, BATCH_ROWS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(target, dies(), "job/task")
    assert published_count(bus) == BATCH_ROWS
    backwards = rows.take(pa.array(range(2 * BATCH_ROWS - 1, -1, -1)))
    again = publish(target, [backwards], "job/task")
    assert (again.published, again.repeated) == (BATCH_ROWS, BATCH_ROWS)
    assert published(bus) == [n // 2 for n in range(2 * BATCH_ROWS)]


def test_large_rows_are_published_a_few_at_a_time(tmp_path: Path) -> None:
    """The mistake in the last row comes after the others were published."""
    url = f"sqlite:///{tmp_path}/bus.db"
    with open_bus(url) as bus:
        target = Target(url, "out", Layout("payload", ()), None, None)
        texts = [f'"{"x" * 800_000}"'] * 20 + ["{"]
        with pytest.raises(InvalidPayloadError, match="row 21 of its task"):
            publish(target, [pa.RecordBatch.from_pydict({"payload": texts})], "job/task")
        assert 15 <= published_count(bus) <= 20


def test_a_topic_that_forgets_keys_at_once_cannot_be_written_to_by_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    with open_store(url) as store:
        store.declare([TopicConfig("out", dedup_ms=0)])
    target = Target(url, "out", Layout(None, ("n",)), "once", None)
    rows = pa.RecordBatch.from_pydict({"n": [1]})
    with pytest.raises(UsageError, match=r"dedup.window is 0.*give it a window"):
        publish(target, [rows], "once")
    assert publish(replace(target, write_id=None), [rows], "job/task").published == 1
