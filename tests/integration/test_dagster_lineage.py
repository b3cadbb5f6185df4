"""One connected graph of topics, tables and dead letters; what belongs to it, and what a user may
put in its place."""

import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    Definitions,
    MetadataValue,
    TableColumnDep,
    asset,
    in_process_executor,
    mem_io_manager,
    multiprocess_executor,
)
from dagster_pyspark import PySparkResource

from benchmarks.loading import project as many
from dagster_bus import BusResource, load_definitions
from dagster_bus.errors import SpecError
from dagster_bus.orchestration.lots import CHECKED_TOGETHER
from tests.support.project import write_topics

CHAIN = {
    "stock: {}": "stock: {schema: {fields: {n: bigint}}, labels: {domain: shop}, docs: https://wiki/stock}",
    "pipeline: tests.support.pipelines:keep": "sql: SELECT n, n + 1 AS next FROM events",
    "launch_timeout: 60s": """publish: stock
    slo: {max_age: 10m}
    owners: [team:shop]
    labels: {domain: shop, tier: gold}
    docs: https://wiki/orders#table
    launch_timeout: 60s
  stock-table:
    topics: [stock]
    sql: SELECT n AS number FROM events WHERE n > 1
    table: {path: data/stock, format: parquet}""",
}


def key(*path: str) -> AssetKey:
    return AssetKey(path)


def test_topics_tables_published_topics_and_dead_letters_are_one_graph(tmp_path: Path) -> None:
    @asset(deps=[key("stock_table")])
    def report() -> None: ...

    defs = Definitions.merge(
        load_definitions(write_topics(tmp_path, **CHAIN)), Definitions(assets=[report])
    )
    Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    parents = {
        node.key.to_user_string(): {parent.to_user_string() for parent in node.parent_keys}
        for node in graph.asset_nodes
    }
    assert parents == {
        "orders/created": set(),
        "strict": set(),
        "order_table": {"orders/created"},
        "order_table/dead_letters": {"order_table"},
        "stock": {"order_table"},
        "stock_table": {"stock"},
        "stock_table/dead_letters": {"stock_table"},
        "report": {"stock_table"},
    }
    table, topic = graph.get(key("order_table")), graph.get(key("orders", "created"))
    boxes = {node.key.to_user_string(): node.group_name for node in graph.asset_nodes}
    assert boxes["orders/created"] == "topics"
    assert boxes["stock"] == boxes["order_table"] == "order_table", "the group publishes to it"
    assert table.kinds == {"spark", "deltalake", "sql"}
    assert table.owners == graph.get(key("order_table", "dead_letters")).owners == ["team:shop"]
    assert topic.kinds == {"topic", "sqlite"}
    assert topic.metadata["declared in"] == "topics.yaml:9"
    for path in ("order_table", "order_table/dead_letters"):
        found = graph.get(key(*path.split("/")))
        assert {"domain": "shop", "tier": "gold"}.items() <= found.tags.items()
        assert found.metadata["docs"] == MetadataValue.url("https://wiki/orders#table")
    assert graph.get(key("stock")).tags["domain"] == "shop"
    assert graph.get(key("stock")).metadata["docs"] == MetadataValue.url("https://wiki/stock")
    assert "docs" not in topic.metadata
    lineage = table.metadata["dagster/column_lineage"].deps_by_column
    assert lineage == {"n": [TableColumnDep(key("orders", "created"), "n")]}
    further = graph.get(key("stock_table")).metadata["dagster/column_lineage"].deps_by_column
    assert further == {"number": [TableColumnDep(key("stock"), "n")]}
    assert table.metadata["publishes to"] == key("stock")
    policy = table.freshness_policy
    assert policy is not None
    assert graph.get(key("stock_table")).freshness_policy is None


def test_resources_and_the_executor_can_be_others(tmp_path: Path) -> None:
    file = write_topics(tmp_path)
    usual = load_definitions(file)
    assert usual.resolve_job_def("order_table_job").executor_def is in_process_executor
    spark = PySparkResource(spark_config={"spark.remote": "sc://elsewhere"})
    bus = BusResource(topics_yaml=str(file))
    defs = load_definitions(
        file,
        resources={"pyspark": spark, "bus": bus, "io_manager": mem_io_manager},
        executor=multiprocess_executor,
    )
    Definitions.validate_loadable(defs)
    job = defs.resolve_job_def("order_table_job")
    assert job.executor_def is multiprocess_executor
    assert defs.resources is not None
    assert defs.resources["pyspark"] is spark
    assert job.resource_defs["io_manager"] is mem_io_manager
    used = job.resource_defs["pyspark"].configurable_resource_cls  # type: ignore[attr-defined]
    assert used is PySparkResource


def test_a_project_of_hundreds_loads_without_a_look_at_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(sqlite3, "connect", asked)
    defs = load_definitions(many(tmp_path, 50, 2 * CHECKED_TOGETHER + 1))
    Definitions.validate_loadable(defs)
    repository = defs.get_repository_def()
    assert len(repository.get_all_jobs()) == 201 + 5 + 1
    assert_checked_in_lots(defs)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(AssertionError, match="the store was asked"):
        defs.resources["bus"].open()  # type: ignore[index]


def assert_checked_in_lots(defs: Definitions) -> None:
    """A few definitions have the checks of all groups, in which each group has its own."""
    checks = list(defs.asset_checks or ())
    names = [each.node_def.name for each in checks]
    assert names == ["group_checks", "group_checks_2", "group_checks_3"]
    by_asset = Counter(key.asset_key.to_user_string() for each in checks for key in each.check_keys)
    assert by_asset == {
        **{f"g{number}": 3 for number in range(201)},
        **{f"g{number}/dead_letters": 1 for number in range(201)},
    }


def test_a_group_called_like_a_lot_of_checks_is_refused_if_there_is_one(tmp_path: Path) -> None:
    file = many(tmp_path, 2, CHECKED_TOGETHER)
    text = file.read_text(encoding="utf-8").replace("  g7:", "  group-checks-2:")
    file.write_text(text, encoding="utf-8")
    assert load_definitions(file)
    more = "  g-more: {topics: [t0.created], sql: SELECT id FROM events, table: {path: more}}\n"
    file.write_text(text + more, encoding="utf-8")
    with pytest.raises(SpecError, match="group-checks-2 and the bus's own work would both be"):
        load_definitions(file)


@pytest.mark.parametrize(
    "name",
    ["prune-topics", "all-dead-letters", "redrive-dead-letters", "redrive-dead-letters-step"],
)
def test_a_group_that_is_called_like_the_work_of_the_bus_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(SpecError) as found:
        load_definitions(write_topics(tmp_path, **{"order-table:": f"{name}:"}))
    assert f"groups.{name} and the bus's own work would both be called" in str(found.value)
