"""The log as a DataFrame: which events, in which columns, by how many tasks."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Message
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicPartition
from dagster_bus.spark import register
from dagster_bus.spark.session import session_config
from dagster_bus.spark.source.columns import ENVELOPE
from dagster_bus.spec.models import SparkSpec
from dagster_bus.stores import arrow, open_store
from dagster_bus.stores.arrow import read_batches
from tests.support.spark_source import numbers, open_bus, publish, read

LARGE = 400_000


@pytest.fixture
def bus(store_url: str) -> Iterator[Bus]:
    with open_bus(store_url) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def places(events: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in events.collect())


def test_topics_are_read_by_name_and_pattern_with_their_envelope(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    publish(bus, "orders.created", range(6), key="k", attributes={"region": "eu"})
    publish(bus, "orders.paid", range(6, 9))
    publish(bus, "out", [99])
    assert numbers(read(spark, store_url)) == list(range(9))
    events = read(spark, store_url, topics="orders.paid, out")
    assert events.columns == list(ENVELOPE)
    row = events.where("topic = 'orders.paid'").orderBy("offset").first()
    (event, *_) = bus.read("orders.paid")
    assert row is not None
    assert (row.id, row.offset, row.payload, row.attributes) == (event.id, 1, '{"n":6}', "{}")
    assert int(row.ts.timestamp() * 1000) == event.ts


def test_a_batch_is_between_offsets_of_which_the_last_is_left_out(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    bus.publish_many("orders.created", [Message({"n": n}, partition=n % 2) for n in range(20)])
    events = read(
        spark,
        store_url,
        topics="orders.created",
        startingOffsets='{"orders.created": {"0": 9, "1": -2}}',
        endingOffsets='{"orders.created": {"0": -1, "1": 3}}',
    )
    assert places(events) == [(0, 9), (0, 10), (1, 1), (1, 2)]


def test_a_batch_is_between_times_of_which_the_last_is_left_out(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    day = 1_795_000_000_000
    old = [Message({"n": n}, ts=day + n * 1_000) for n in range(10)]
    bus.publish_many("orders.paid", old)
    between = {"startingTimestamp": day + 3_000, "endingTimestamp": day + 6_000}
    assert numbers(read(spark, store_url, topics="orders.paid", **between)) == [3, 4, 5]


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ('{"orders.created": {"0": 1}}', "startingOffsets has no offset for orders.created/1"),
        (
            '{"orders.created": {"0": 1, "1": 1, "2": 1}}',
            "not chosen or is not there: orders.created/2",
        ),
        ('{"orders.created": {"0": 9, "1": 1}}', "0 ends before offset 6, and 9 is beyond it"),
    ],
)
def test_offsets_that_cannot_be_are_refused(
    spark: SparkSession, tmp_path: Path, offsets: str, told: str
) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    with open_bus(url) as bus:
        publish(bus, "orders.created", range(10))
    with pytest.raises(Exception, match=told):
        read(spark, url, topics="orders.created", startingOffsets=offsets).count()


def test_a_trimmed_start_is_an_error_that_says_where_the_log_begins(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    publish(bus, "orders.paid", range(10))
    with open_store(store_url) as store:
        store.trim(TopicPartition("orders.paid", 0), 5, 100)
    asked = {"topics": "orders.paid", "startingOffsets": '{"orders.paid": {"0": 2}}'}
    with pytest.raises(Exception, match=r"orders.paid/0 begins with offset 5: 2 was deleted"):
        read(spark, store_url, **asked).count()
    assert numbers(read(spark, store_url, **asked, failOnDataLoss="false")) == list(range(4, 10))


def test_events_that_are_trimmed_after_planning_are_an_error_or_left_out(
    bus: Bus, store_url: str
) -> None:
    publish(bus, "orders.paid", range(10))
    span = OffsetRange("orders.paid", 0, 1, 10)
    bus.close()
    with open_store(store_url) as store:
        store.trim(TopicPartition("orders.paid", 0), 5, 100)
    with pytest.raises(Exception, match=r"orders.paid/0 begins with offset 5"):
        list(read_batches(store_url, span, EventFilter()))
    left = list(read_batches(store_url, span, EventFilter(), complete=False))
    assert [row["offset"] for batch in left for row in batch.to_pylist()] == list(range(5, 11))


def test_an_unknown_option_and_an_unknown_topic_are_told_with_what_might_be_meant(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    with pytest.raises(Exception, match=r"'startingofset' is unknown \(did you mean 'startingOff"):
        read(spark, store_url, startingOfset="earliest").count()
    with pytest.raises(Exception, match=r"'orders.payd' selects none.*did you mean 'orders.paid'"):
        read(spark, store_url, topics="orders.payd").count()


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, bus: Bus, store_url: str) -> None:
    assert read(spark, store_url).count() == 0


def test_the_address_can_come_from_the_file_that_declares_the_bus(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "topics.yaml").write_text(
        "version: 1\nstore: sqlite:///bus.db\ntopics:\n  orders.paid: {}\n", encoding="utf-8"
    )
    with open_bus(f"sqlite:///{tmp_path}/bus.db") as bus:
        publish(bus, "orders.paid", [1])
    given = {"config": str(tmp_path / "topics.yaml"), "topics": "orders.paid"}
    assert spark.read.format("dagster_bus").options(**given).load().count() == 1


def test_declared_columns_stand_beside_the_envelope(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    payload = {
        "n": 7,
        "price": "12.50",
        "at": "2026-11-18T01:02:03Z",
        "tags": ["a", None],
        "seen": {"x": 1},
        "ship": {"day": "2026-12-01", "express": True},
    }
    bus.publish_many("orders.created", [Message(payload, key="k")])
    events = read(spark, store_url, topics="orders.created", typed="true")
    (row,) = events.collect()
    assert (row.n, row.price, row["at"]) == (7, Decimal("12.50"), datetime(2026, 11, 18, 1, 2, 3))  # noqa: DTZ001
    assert (row.tags, row.seen) == (["a", None], {"x": 1})
    assert (row.ship.day, row.ship.express) == (date(2026, 12, 1), True)
    assert (row._event.key, row._event.topic) == ("k", "orders.created")
    assert json.loads(row._event.payload) == payload
    by_spark = read(spark, store_url, topics="orders.created").selectExpr(
        f"from_json(payload, '{events.drop('_event').schema.toDDL()}') AS p"
    )
    assert by_spark.select("p.*").collect() == events.drop("_event").collect()
    with pytest.raises(Exception, match=r"orders.paid declares no schema"):
        read(spark, store_url, topics="orders.paid", typed="true")


def test_filters_on_place_and_time_become_ranges(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    """Spark is left with nothing to filter, and tasks with nothing else to read."""
    bus.publish_many("orders.created", [Message({"n": n}, partition=n % 2) for n in range(40)])
    publish(bus, "orders.paid", range(5))
    (event, *_) = bus.read("orders.created", 1)
    moment = datetime.fromtimestamp(event.ts / 1_000, UTC).isoformat()
    events = read(spark, store_url).where(
        f"topic = 'orders.created' AND partition IN (1, 7) AND offset > 3 AND offset <= 6 "
        f"AND ts >= timestamp'{moment}'"
    )
    assert places(events) == [(1, 4), (1, 5), (1, 6)]
    assert "Filter (" not in _plan(events)
    nothing = events.where(f"ts < timestamp'{moment}'")
    assert nothing.collect() == []
    typed = read(spark, store_url, topics="orders.created", typed="true")
    assert "Filter (" not in _plan(typed.where("_event.offset = 1"))
    assert typed.where("_event.offset = 1").count() == 2
    assert "Filter (" in _plan(events.where("payload LIKE '%3%'"))


def _plan(events: DataFrame) -> str:
    return str(events._jdf.queryExecution().executedPlan().toString())


def test_a_session_that_pushes_no_filters_down_reads_the_same(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    publish(bus, "orders.paid", range(5))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        events = read(spark, store_url).where("offset > 3")
        assert places(events) == [(0, 4), (0, 5)]
        assert "Filter (" in _plan(events)
    finally:
        register(spark)


def test_a_schema_that_is_asked_for_is_all_that_is_read(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    publish(bus, "orders.paid", range(3), key="k")
    reader = spark.read.format("dagster_bus").option("store", store_url).option("topics", "**")
    rows = reader.schema("offset bigint, key string").load().collect()
    assert [tuple(row) for row in rows] == [(1, "k"), (2, "k"), (3, "k")]
    bus.close()
    span = OffsetRange("orders.paid", 0, 1, 3)
    (batch,) = read_batches(store_url, span, EventFilter(), ["offset", "key"])
    assert batch["payload"].null_count == 3
    with pytest.raises(Exception, match="column 'offset' is bigint, and int in the schema"):
        reader.schema("offset int").load().count()
    with pytest.raises(Exception, match=r"a column 'ofset', and events have none.*'offset'"):
        reader.schema("ofset bigint").load().count()


def test_a_long_log_is_read_by_as_many_tasks_as_are_asked_for(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    publish(bus, "orders.created", range(60))
    publish(bus, "orders.paid", range(60, 70))
    few, many = read(spark, store_url), read(spark, store_url, minPartitions="7")
    assert few.rdd.getNumPartitions() == 1
    assert many.rdd.getNumPartitions() == 7
    assert numbers(many) == list(range(70))


def test_large_events_are_read_a_few_at_a_time(
    bus: Bus, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "x" * LARGE
    bus.publish_many("out", [Message({"n": n, "text": text}, partition=0) for n in range(9)])
    bus.close()
    monkeypatch.setattr(arrow, "MAX_BATCH_BYTES", 3 * LARGE)
    monkeypatch.setattr("dagster_bus.stores.mongo.reading.PAGE_BYTES", 3 * LARGE)
    batches = list(read_batches(store_url, OffsetRange("out", 0, 1, 9), EventFilter()))
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(1, 10))
    assert all(batch.nbytes < 5 * LARGE for batch in batches)


def test_a_password_shows_in_no_plan_and_no_error(
    spark: SparkSession, mongo_database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = f"s3cr3t-{uuid4().hex}"
    url = with_user(mongo_database_url, secret)
    with open_bus(url) as bus:
        publish(bus, "orders.paid", range(3))
    events = read(spark, url)
    assert events.count() == 3
    events.explain(True)
    events.explain("formatted")
    writer = events.select("payload").write.format("dagster_bus").mode("append")
    writer.option("store", url).option("topic", "out").save()
    wrong = url.replace(secret, f"{secret}x")
    errors = []
    for action in (
        lambda: read(spark, wrong).count(),
        lambda: read(spark, url, topics="nothing").count(),
        lambda: read(spark, f"{url}&replicaSet=other").count(),
        lambda: writer.option("store", wrong).option("topic", "out").save(),
    ):
        with pytest.raises(Exception) as error:  # noqa: PT011  (whatever it is)
            action()
        errors.append(str(error.value))
    shown = capfd.readouterr()
    assert "Physical Plan" in shown.out
    told = "\n".join([shown.out, shown.err, *errors])
    assert "refused" in told or "Authentication failed" in told or "password" in told
    assert not re.search(secret, told)


def test_spark_leaves_out_what_is_secret_in_the_options_of_a_query(spark: SparkSession) -> None:
    """As a Spark Connect server writes them down: of the store, and of a table in S3."""
    options = {
        "store": "mongodb://me:s3cr3t@host/bus",
        "fs.s3a.access.key": "s3cr3t-1",
        "fs.s3a.secret.key": "s3cr3t-2",
        "fs.s3a.session.token": "s3cr3t-3",
        "fs.s3a.endpoint": "http://host:9000",
    }
    said = "".join(
        f'  options {{\n    key: "{name}"\n    value: "{text}"\n  }}\n'
        for name, text in options.items()
    )
    pattern = session_config(SparkSpec())["spark.sql.redaction.string.regex"]
    blotted = F.regexp_replace(F.lit(said), F.lit(pattern), F.lit("***"))
    ((shown,),) = spark.range(1).select(blotted).collect()
    assert "s3cr3t" not in shown
    assert shown.count('"***"') == 3
    assert "mongodb://***@host/bus" in shown
    assert "http://host:9000" in shown


def with_user(url: str, password: str) -> str:
    """The same address with a user of its own."""
    user = f"u{uuid4().hex[:8]}"
    with MongoClient[dict[str, Any]](url) as client:
        client.admin.command("createUser", user, pwd=password, roles=["root"])
    return url.replace("://", f"://{user}:{password}@") + (
        "&authSource=admin" if "?" in url else "?authSource=admin"
    )
