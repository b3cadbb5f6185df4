"""Deliveries from the log through Spark into a Delta table: each of them once, whatever happens."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Message
from dagster_bus.core.groups import Group
from dagster_bus.core.lease import Keeper
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import LeaseLost, PipelineError, TableError
from dagster_bus.spark.frames import read_events
from dagster_bus.spark.pipeline import ONLY
from dagster_bus.spark.processing import Result, Work, process
from dagster_bus.spark.source import PIECE
from dagster_bus.spark.tables import Table
from dagster_bus.spark.tables.delta import DeltaSink
from dagster_bus.stores import open_store
from tests.support.builders import group_config

COLUMNS = {"n": "bigint", "price": "decimal(12,2)", "at": "timestamp"}


def keep(events: DataFrame) -> DataFrame:
    return events.select("n", "price", F.col("_event.key").alias("key"))


@pytest.fixture
def bus(store_url: str) -> Iterator[Bus]:
    store = open_store(store_url)
    topics = [TopicConfig("orders", 2)]
    store.declare(topics)
    config = group_config(lease_ms=600_000, launch_timeout_ms=600_000, max_inflight=4)
    with Bus(store, topics, [config], system_clock) as opened:
        yield opened


@pytest.fixture
def work(store_url: str, tmp_path: Path) -> Work:
    table = Table(str(tmp_path / "table"))
    return Work(
        name="tests:keep", store=store_url, columns=COLUMNS, pipeline=keep, tables={ONLY: table}
    )


def table_of(work: Work) -> Table:
    return work.tables[ONLY]


class Holder(Keeper):
    """Somebody who is sure to hold the lease, rightly or not."""

    def __init__(self, delivery: Delivery, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__(cast(Group, None), delivery)
        self.check = meanwhile  # type: ignore[method-assign]


def publish(bus: Bus, first: int, count: int, **attributes: Any) -> None:
    bus.publish_many(
        "orders",
        [
            Message({"n": n, "price": "1.50", "at": "2026-11-18T01:02:03Z"}, attributes=attributes)
            for n in range(first, first + count)
        ],
    )


def take(bus: Bus) -> Delivery:
    """The next delivery, leased."""
    group = bus.group("readers")
    (delivery,) = group.reserve()
    return group.lease(delivery.id, reservation=1, worker="run")


def run(spark: SparkSession, work: Work, delivery: Delivery) -> Result:
    return process(lambda: spark, work, Holder(delivery))


def rows(work: Work) -> list[int]:
    """What an independent reader sees."""
    return sorted(pl.read_delta(table_of(work).path)["n"].to_list())


def test_events_arrive_typed_with_their_envelope(
    spark: SparkSession, bus: Bus, store_url: str
) -> None:
    (at,) = bus.publish_many(
        "orders",
        [
            Message(
                {"n": 7, "price": "12.50", "at": "2026-11-18T01:02:03Z", "other": 1},
                key="k-é😀",
                source="shop",
                attributes={"channel": "web"},
            )
        ],
    )
    span = OffsetRange("orders", at.partition, 1, 1)
    (row,) = read_events(spark, store_url, [span], EventFilter(), COLUMNS).collect()
    assert (row.n, row.price) == (7, Decimal("12.50"))
    assert row["at"].isoformat() == "2026-11-18T01:02:03"
    event = row._event
    assert (event.id, event.topic, event.partition, event.offset) == (
        at.id, "orders", at.partition, 1,
    )  # fmt: skip
    assert (event.key, event.source, event.schema_version) == ("k-é😀", "shop", 1)
    assert event.attributes == '{"channel":"web"}'
    assert int(event.ts.timestamp() * 1000) == at.ts


def test_a_key_that_comes_late_is_still_text(spark: SparkSession, bus: Bus, store_url: str) -> None:
    messages = [Message({"n": n}, key=None) for n in range(4_000)]
    bus.publish_many("orders", messages)
    bus.publish_many("orders", [Message({"n": -1}, key="a"), Message({"n": -2}, key="b")])
    spans = [OffsetRange("orders", partition, 1, 2_001) for partition in (0, 1)]
    events = read_events(spark, store_url, spans, EventFilter(), {})
    keys = [row.key for row in events.select("_event.key").distinct().collect()]
    assert set(keys) == {None, "a", "b"}


def test_a_long_range_is_read_by_many_tasks(spark: SparkSession, bus: Bus, store_url: str) -> None:
    span = OffsetRange("orders", 0, 1, 4 * PIECE + 1)  # planning alone needs no events
    events = read_events(spark, store_url, [span], EventFilter(), {})
    assert events.rdd.getNumPartitions() == 5


def test_a_delivery_becomes_rows_of_its_window(spark: SparkSession, bus: Bus, work: Work) -> None:
    publish(bus, 0, 50)
    delivery = take(bus)
    result = run(spark, work, delivery)
    assert (result.rows, result.filtered, result.repeated) == (50, 0, False)
    table = pl.read_delta(table_of(work).path)
    assert sorted(table["n"]) == list(range(50))
    assert set(table["_window"]) == {delivery.window}
    assert table["price"].sum() == Decimal("75.00")


def test_events_that_a_filter_keeps_out_are_counted(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    publish(bus, 0, 10, channel="web", tier=1)
    publish(bus, 10, 5, channel="phone", tier=1)
    publish(bus, 15, 3, channel="web", tier=True)
    publish(bus, 18, 2, channel="web", tier="1")
    wanted = replace(work, wanted=EventFilter({"channel": "web", "tier": 1}))
    result = run(spark, wanted, take(bus))
    assert (result.rows, result.filtered) == (10, 10)
    assert rows(work) == list(range(10))


def test_what_compaction_has_taken_out_is_counted_as_filtered(
    spark: SparkSession, bus: Bus, work: Work, store_url: str
) -> None:
    """A group that begins with a compacted log; what comes later must all be there."""
    bus.publish_many("orders", [Message({"n": n}, key="a", partition=0) for n in range(10)])
    with open_store(store_url) as store:
        store.compact(TopicPartition("orders", 0), 9, 0, 100)
    delivery = take(bus)
    assert delivery.size == 10
    result = run(spark, replace(work, compacted=True), delivery)
    assert (result.rows, result.filtered) == (3, 7)
    assert rows(work) == [7, 8, 9]


def test_a_delivery_that_runs_twice_leaves_its_rows_once(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    """The first worker committed and died before it could settle."""
    publish(bus, 0, 10)
    delivery = take(bus)
    run(spark, work, delivery)
    again = run(spark, work, replace(delivery, token=2))
    assert again.repeated
    assert rows(work) == list(range(10))


def test_a_worker_that_dies_between_writing_and_committing_leaves_nothing(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    publish(bus, 0, 10)
    delivery = take(bus)

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process(lambda: spark, work, Holder(delivery, die))
    assert list(Path(table_of(work).path).rglob("*.parquet")), "the rows were written"
    assert not (Path(table_of(work).path) / "_delta_log").exists()
    run(spark, work, replace(delivery, token=2))
    assert rows(work) == list(range(10))


def test_a_late_worker_cannot_commit_after_its_delivery_was_taken_over(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    publish(bus, 0, 10)
    run(spark, work, take(bus))
    publish(bus, 10, 10)
    delivery = take(bus)
    late = DeltaSink(table_of(work), delivery)
    events = read_events(spark, work.store, delivery.ranges, EventFilter(), COLUMNS)
    written = late.write(keep(events))
    successor = DeltaSink(table_of(work), replace(delivery, token=delivery.token + 1))
    with pytest.raises(LeaseLost, match="was taken over"):
        late.commit(written)
    assert rows(work) == list(range(10)), "the late worker's rows are not in the table"
    successor.commit(successor.write(keep(events)))
    assert rows(work) == list(range(20))


def test_an_old_token_cannot_open_a_table_that_a_later_one_has_fenced(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    """The late worker stalled before it had even looked at the table."""
    publish(bus, 0, 10)
    run(spark, work, take(bus))
    publish(bus, 10, 10)
    delivery = take(bus)
    DeltaSink(table_of(work), replace(delivery, token=2))
    with pytest.raises(LeaseLost, match="fenced with token 2, and this worker has 1"):
        run(spark, work, delivery)
    assert rows(work) == list(range(10))


def test_a_successor_that_is_overtaken_while_it_fences_finds_the_rows(
    spark: SparkSession, bus: Bus, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late worker commits between the successor's look at the table and its fence."""
    publish(bus, 0, 10)
    run(spark, work, take(bus))
    publish(bus, 10, 10)
    delivery = take(bus)
    fence = DeltaSink._log

    def late_worker_is_faster(sink: DeltaSink, *rest: Any) -> None:
        monkeypatch.setattr(DeltaSink, "_log", fence)
        run(spark, work, delivery)
        fence(sink, *rest)

    monkeypatch.setattr(DeltaSink, "_log", late_worker_is_faster)
    assert DeltaSink(table_of(work), replace(delivery, token=2)).committed()
    assert rows(work) == list(range(20))


def test_events_that_are_not_in_the_store_stop_the_run(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    publish(bus, 0, 10)
    delivery = take(bus)
    longer = replace(delivery, ranges=(OffsetRange("orders", 0, 1, 50),))
    with pytest.raises(Exception, match=r"orders/0:1-50 has 5 of its 50 events in the store"):
        run(spark, work, longer)
    assert not (Path(table_of(work).path) / "_delta_log").exists()


def test_a_table_is_fenced_before_it_has_any_rows(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    """Both find no table and both write; the second one's fence makes the table."""
    publish(bus, 0, 10)
    delivery = take(bus)
    events = read_events(spark, work.store, delivery.ranges, EventFilter(), COLUMNS)
    sinks = [DeltaSink(table_of(work), replace(delivery, token=token)) for token in (1, 2)]
    written = [sink.write(keep(events)) for sink in sinks]
    with pytest.raises(LeaseLost, match="fenced with token 2, and this worker has 1"):
        sinks[0].commit(written[0])
    sinks[1].commit(written[1])
    assert rows(work) == list(range(10))


def test_deliveries_that_commit_at_the_same_time_are_both_kept(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    publish(bus, 0, 10)
    run(spark, work, take(bus))
    sinks = []
    for first in (10, 20):
        publish(bus, first, 10)
        delivery = take(bus)
        events = read_events(spark, work.store, delivery.ranges, EventFilter(), COLUMNS)
        sink = DeltaSink(table_of(work), delivery)
        sinks.append((sink, sink.write(keep(events))))
    for sink, written in sinks:
        sink.commit(written)
    assert rows(work) == list(range(30))


def test_other_columns_stop_before_anything_is_written(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    publish(bus, 0, 10)
    run(spark, work, take(bus))
    files = set(Path(table_of(work).path).rglob("*.parquet"))
    publish(bus, 10, 10)
    other = replace(work, pipeline=lambda events: events.select(F.col("n").cast("string")))
    with pytest.raises(TableError, match=r"n is bigint in the table and string in the pipeline"):
        run(spark, other, take(bus))
    assert set(Path(table_of(work).path).rglob("*.parquet")) == files
    assert rows(work) == list(range(10))


def test_a_pipeline_that_returns_no_dataframe_is_told_so(
    spark: SparkSession, bus: Bus, work: Work
) -> None:
    publish(bus, 0, 1)
    broken = replace(work, pipeline=lambda events: events.count())
    with pytest.raises(PipelineError, match="tests:keep returned int; it must return a DataFrame"):
        run(spark, broken, take(bus))


def test_an_empty_result_is_a_result(spark: SparkSession, bus: Bus, work: Work) -> None:
    publish(bus, 0, 10)
    delivery = take(bus)
    nothing = replace(work, pipeline=lambda events: keep(events).where("n < 0"))
    assert run(spark, nothing, delivery).rows == 0
    assert run(spark, nothing, delivery).repeated
    assert pl.read_delta(table_of(work).path).height == 0
