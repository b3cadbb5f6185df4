"""Groups' tables as inputs of other Dagster assets."""

from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetIn,
    AssetKey,
    AssetsDefinition,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    asset,
)
from dagster_pyspark import PySparkResource
from pyspark.sql import DataFrame, SparkSession

from dagster_bus import load_definitions
from dagster_bus.core.clock import system_clock
from dagster_bus.core.window import FIRST_WINDOW, HOUR_MS, HOURLY
from dagster_bus.orchestration.io_manager import SparkTableIOManager
from dagster_bus.orchestration.names import table_key
from dagster_bus.orchestration.windows import hourly_windows
from dagster_bus.spark.tables import Table
from tests.support.project import write_topics
from tests.support.tables import deliver, delivery, numbers

DAY = HOURLY.at(system_clock() - 24 * HOUR_MS).key[:10]
FIRST, SECOND = f"{DAY}T05", f"{DAY}T06"
TABLE = table_key("order-table")

pytestmark = pytest.mark.filterwarnings(  # Dagster's own, of resources within resources
    "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_topics(tmp_path)


def reader(name: str = "sum", upstream: AssetKey = TABLE, **partitions: Any) -> AssetsDefinition:
    """An asset that adds up the numbers it is given."""

    def sum_(rows: DataFrame) -> int:
        return sum(row.n for row in rows.collect())

    ins = {"rows": AssetIn(upstream, input_manager_key="tables")}
    made: AssetsDefinition = asset(name=name, ins=ins, **partitions)(sum_)
    return made


def run(file: Path, instance: DagsterInstance, *assets: Any, key: str | None = None) -> Any:
    pyspark = PySparkResource(spark_config={})
    mine = Definitions(
        assets=assets,
        resources={"tables": SparkTableIOManager(topics_yaml=str(file), pyspark=pyspark)},
    )
    defs = Definitions.merge(load_definitions(file), mine)
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[each.key for each in assets],
        partition_key=key,
        raise_on_error=False,
    )


def test_a_downstream_asset_gets_the_rows_of_its_window_or_of_all(
    spark: SparkSession, file: Path, instance: DagsterInstance
) -> None:
    table = Table(str(file.parent / "data/orders"))
    deliver(table, delivery("d1", FIRST), numbers(spark, 1, 2))
    deliver(table, delivery("d2", SECOND), numbers(spark, 10, 1))
    by_hour = reader("by_hour", partitions_def=hourly_windows())
    for key, expected in ((FIRST, 3), (SECOND, 10), (f"{DAY}T07", 0)):
        assert run(file, instance, by_hour, key=key).output_for_node("by_hour") == expected
    by_day = reader("by_day", partitions_def=DailyPartitionsDefinition(FIRST_WINDOW))
    assert run(file, instance, by_day, key=DAY).output_for_node("by_day") == 13
    assert run(file, instance, reader()).output_for_node("sum") == 13


def test_a_table_that_no_run_has_written_says_so(
    spark: SparkSession, file: Path, instance: DagsterInstance
) -> None:
    assert "no run has written to it" in failure(run(file, instance, reader()))


def test_an_asset_that_is_no_table_says_which_are(
    spark: SparkSession, file: Path, instance: DagsterInstance
) -> None:
    told = failure(run(file, instance, reader(upstream=AssetKey(["stock"]))))
    assert "stock is not the table of a group (there are: order_table)" in told


def test_nothing_else_is_stored_in_a_groups_table(
    spark: SparkSession, file: Path, instance: DagsterInstance
) -> None:
    @asset(io_manager_key="tables")
    def other() -> int:
        return 1

    told = failure(run(file, instance, other), "other")
    assert "other (int) is not stored" in told
    assert "written by the groups' own runs" in told


def failure(result: Any, node: str = "sum") -> str:
    assert not result.success
    error = result.failure_data_for_node(node)
    return f"{error.user_failure_data} {error.error}"
