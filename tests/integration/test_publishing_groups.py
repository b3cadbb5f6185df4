"""Rows of a group as events of another topic, once each, with a real Spark session."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus import Bus
from dagster_bus.core.groups import Group
from dagster_bus.core.store import Tally
from dagster_bus.errors import StoreUnusable
from dagster_bus.orchestration.drift import drift_of
from dagster_bus.spark.tables.delta import DeltaSink
from dagster_bus.spec.load import load_spec
from tests.support.dagster_project import Project
from tests.support.project import write_topics

CHAIN = {
    "stock: {}": "stock: {schema: {fields: {n: bigint, drawn: double}}, dedup: {window: 0s}}",
    "tests.support.pipelines:keep": "tests.integration.test_publishing_groups:draw",
    "launch_timeout: 60s": """publish: stock
    launch_timeout: 60s
  stock-copy:
    topics: [stock]
    sql: SELECT n, drawn FROM events
    table: {path: data/stock}
    retry: quick
  strict-feed:
    topics: [orders.created]
    sql: SELECT n * 10 AS n, _event.key AS key FROM events
    publish: strict
    retry: quick
    on_exhausted: isolate
  unused:
    topics: [stock]""",
    "on_exhausted: dead_letter": "on_exhausted: block",
}


def draw(events: DataFrame) -> DataFrame:
    """Not the same when it is done again."""
    return events.select("n", F.rand().alias("drawn"))


def store_is_full(*_: object, **__: object) -> None:
    raise StoreUnusable("the disk is full")


def commit_and_lose_the_connection(sink: DeltaSink, written: Any) -> None:
    COMMIT(sink, written)
    raise ConnectionError("the connection was lost")


COMMIT = DeltaSink.commit


class Chain(Project):
    """A topic, a table, a topic, and a table."""

    def settle_up(self, job: str) -> Any:
        sensor = job.replace("_job", "_sensor")
        for _ in range(100):  # a tick takes lost work back; one of the next has waited for it
            for request in self.tick(sensor=sensor).run_requests or []:
                return self.run(request)
        raise AssertionError("nothing to do")

    def table(self, name: str) -> dict[int, float]:
        rows = DeltaTable(str(self.file.parent / "data" / name)).to_pyarrow_table().to_pylist()
        found = {row["n"]: row["drawn"] for row in rows}
        assert len(found) == len(rows)
        return found

    def events(self, topic: str) -> list[Any]:
        with Bus.open(self.file) as bus:
            return [*bus.tail(topic)]


FAULTS: list[tuple[type, str, Callable[..., None]]] = [
    (Group, "settle", store_is_full),
    (DeltaSink, "commit", commit_and_lose_the_connection),
]


def test_rows_go_on_from_table_to_topic_to_table_once_whenever_a_run_dies(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published topic recognises no repetition, and the pipeline gives other numbers each time:
    what is published is what the table has."""
    chain = Chain(write_topics(tmp_path, **CHAIN), instance)
    chain.publish(5)  # in one window, unless the hour ends just now
    assert chain.settle_up("order_table_job").success
    for done, (place, step, fault) in enumerate(FAULTS, start=1):
        chain.publish(5, first=5 * done)
        with monkeypatch.context() as broken:
            broken.setattr(place, step, fault)
            assert not chain.settle_up("order_table_job").success
        assert len(chain.events("stock")) == 5 * done
        optimized = DeltaTable(str(chain.file.parent / "data/orders")).optimize.compact()
        assert optimized["numFilesRemoved"] > 1, "the rows are in other files now"
        result = chain.settle_up("order_table_job")
        assert result.success
        (event,) = result.asset_materializations_for_node("order_table")
        assert event.metadata["already in the table"].value is True
        assert event.metadata["published"].value == 5
    assert chain.tally() == Tally(processed=15)
    published = chain.events("stock")
    assert {each.payload["n"]: each.payload["drawn"] for each in published} == chain.table("orders")
    assert len(published) == 15
    assert {each.source for each in published} == {"order-table"}
    copied = chain.settle_up("stock_copy_job")
    assert copied.success
    assert chain.table("stock") == chain.table("orders")
    (event,) = copied.asset_materializations_for_node("stock_copy")
    schema: Any = event.metadata["dagster/column_schema"].value
    assert {each.name: each.type for each in schema.columns} == {"n": "bigint", "drawn": "double"}
    loaded = load_spec(chain.file)
    with Bus.open(chain.file) as bus:
        assert drift_of(instance, loaded, bus.group("order-table")) == []
        shutil.rmtree(chain.file.parent / "data/stock")
        (lost,) = drift_of(instance, loaded, bus.group("stock-copy"))
    assert "and the table does not have it" in lost


def test_a_group_without_a_table_publishes_what_its_topic_takes_and_isolates_the_rest(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    chain = Chain(write_topics(tmp_path, **CHAIN), instance)
    with Bus.open(chain.file) as bus:
        payloads = [{"n": 1}, {"n": 2}, {"n": 1 << 62}]  # times ten, that is no bigint
        bus.publish_many("orders.created", payloads)
    results = [chain.settle_up("strict_feed_job") for _ in range(3)]
    assert [each.success for each in results] == [False, False, True]
    assert sorted(each.payload["n"] for each in chain.events("strict")) == [10, 20]
    with Bus.open(chain.file) as bus:
        assert bus.group("strict-feed").progress().tally == Tally(processed=2, dead_lettered=1)
