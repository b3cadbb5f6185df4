"""Streams from topic to files and from topic to topic: every event once, across restarts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dagster_bus.core.bus import Bus
from dagster_bus.core.topic import TopicConfig, TopicPartition
from dagster_bus.spark import register
from dagster_bus.stores import open_store
from tests.support.spark_source import TOPICS, open_bus, publish, published

NUMBER = "CAST(get_json_object(payload, '$.n') AS bigint) AS n"
PATIENCE_S = 120


@pytest.fixture
def bus(store_url: str) -> Iterator[Bus]:
    with open_bus(store_url) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def stream(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    given = {"store": url, "topics": "orders.*", "startingOffsets": "earliest"} | options
    return spark.readStream.format("dagster_bus").options(**given).load().selectExpr(NUMBER)


def run(events: DataFrame, folder: Path, to: dict[str, Any] | None = None) -> StreamingQuery:
    """Go through what is there, into files or to a topic."""
    writer = events.writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if to is None:
        query = writer.format("parquet").option("path", str(folder / "table")).start()
    else:
        query = writer.format("dagster_bus").options(**to).start()
    assert query.awaitTermination(PATIENCE_S)
    return query


def rows(folder: Path) -> list[int]:
    return sorted(pl.read_parquet(folder / "table" / "*.parquet")["n"].to_list())


def sizes(query: StreamingQuery) -> list[int]:
    return [each.numInputRows for each in query.recentProgress if each.numInputRows]


def test_a_stream_goes_on_where_its_checkpoint_ends(
    spark: SparkSession, bus: Bus, store_url: str, tmp_path: Path
) -> None:
    publish(bus, "orders.created", range(50))
    query = run(stream(spark, store_url, maxOffsetsPerTrigger="20"), tmp_path)
    assert sizes(query) == [20, 20, 10]
    publish(bus, "orders.created", range(50, 60))
    publish(bus, "orders.paid", range(60, 65))
    query = run(stream(spark, store_url), tmp_path)
    assert sizes(query) == [15]
    assert rows(tmp_path) == list(range(65))


def test_a_running_stream_takes_what_comes_and_topics_that_come_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    with open_bus(url) as bus:
        publish(bus, "orders.paid", range(3))
        query = (
            stream(spark, url, startingOffsets="latest")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .format("parquet")
            .start(str(tmp_path / "table"))
        )
        try:
            query.processAllAvailable()
            publish(bus, "orders.paid", range(3, 6))
            query.processAllAvailable()
            with open_store(url) as store:
                store.declare([*TOPICS, TopicConfig("orders.sent")])
            with Bus(open_store(url), [TopicConfig("orders.sent")]) as later:
                publish(later, "orders.sent", range(6, 9))
            query.processAllAvailable()
        finally:
            query.stop()
        publish(bus, "orders.paid", [9])
        run(stream(spark, url), tmp_path)
    assert rows(tmp_path) == list(range(3, 10))


def test_a_batch_that_is_written_again_after_a_crash_publishes_nothing_twice(
    spark: SparkSession, bus: Bus, store_url: str, tmp_path: Path
) -> None:
    """The stream died after its batch was published and before it was noted as done."""
    to = {"store": store_url, "topic": "out"}
    publish(bus, "orders.created", range(30))
    events = stream(spark, store_url, maxOffsetsPerTrigger="20")
    assert sizes(run(events, tmp_path, to)) == [20, 10]
    assert published(bus) == list(range(30))
    commits = tmp_path / "checkpoint" / "commits"
    for note in (commits / "1", commits / ".1.crc"):
        note.unlink(missing_ok=True)
    publish(bus, "orders.created", range(30, 35))
    assert sum(sizes(run(stream(spark, store_url, minPartitions="3"), tmp_path, to))) >= 15
    assert published(bus) == list(range(35))


def test_a_stream_whose_next_events_were_trimmed_stops_or_goes_on_behind_them(
    spark: SparkSession, bus: Bus, store_url: str, tmp_path: Path
) -> None:
    publish(bus, "orders.paid", range(5))
    run(stream(spark, store_url), tmp_path)
    publish(bus, "orders.paid", range(5, 10))
    with open_store(store_url) as store:
        store.trim(TopicPartition("orders.paid", 0), 9, 100)
    with pytest.raises(Exception, match=r"orders.paid/0 begins with offset 9: 6 was deleted"):
        run(stream(spark, store_url), tmp_path)
    run(stream(spark, store_url, failOnDataLoss="false"), tmp_path)
    assert rows(tmp_path) == [0, 1, 2, 3, 4, 8, 9]


def test_a_checkpoint_of_another_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for name, count in (("one", 5), ("other", 3)):
        with open_bus(f"sqlite:///{tmp_path}/{name}.db") as bus:
            publish(bus, "orders.paid", range(count))
    run(stream(spark, f"sqlite:///{tmp_path}/one.db"), tmp_path)
    with pytest.raises(Exception, match=r"the checkpoint has offset 6 of orders.paid/0, which the"):
        run(stream(spark, f"sqlite:///{tmp_path}/other.db"), tmp_path)
