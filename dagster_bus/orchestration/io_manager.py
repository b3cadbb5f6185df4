"""Groups' tables as inputs of other assets."""

from typing import Any, NoReturn

from dagster import (
    AssetKey,
    ConfigurableIOManager,
    Failure,
    InputContext,
    OutputContext,
    ResourceDependency,
)
from dagster_pyspark import PySparkResource

from dagster_bus.orchestration.names import table_key
from dagster_bus.spark.tables import Table, declared_table, read_table
from dagster_bus.spec.kept import kept_spec
from dagster_bus.spec.load import LoadedSpec


class SparkTableIOManager(ConfigurableIOManager):
    """Loads the table of a group as a Spark DataFrame: all of it, or the windows of the partitions
    that the run is for. The column `_window` says which window a row belongs to.

        @asset(ins={"orders": AssetIn("order_table", input_manager_key="tables")})
        def totals(orders: DataFrame) -> None: ...

        resources={"tables": SparkTableIOManager(topics_yaml="topics.yaml", pyspark=…)}

    It stores nothing: a group's table is written by the group's runs."""

    topics_yaml: str
    pyspark: ResourceDependency[PySparkResource]

    def load_input(self, context: InputContext) -> Any:
        loaded = kept_spec(self.topics_yaml)
        table = _table_of(loaded, context.asset_key)
        windows = context.asset_partition_keys if context.has_asset_partitions else None
        rows = read_table(self.pyspark.spark_session, table, windows)
        if rows is None:
            raise Failure(
                f"The table {table.path} has no columns yet, as no run has written to it. Turn on "
                "the group's sensor and publish events first.",
                allow_retries=False,
            )
        return rows

    def handle_output(self, context: OutputContext, obj: object) -> NoReturn:
        name = context.asset_key.to_user_string() if context.has_asset_key else context.name
        raise Failure(
            f"{name} ({type(obj).__name__}) is not stored: this reads the tables of groups, which "
            "are written by the groups' own runs. Give the asset another io_manager_key.",
            allow_retries=False,
        )


def _table_of(loaded: LoadedSpec, key: AssetKey) -> Table:
    """The table that an asset is."""
    groups = {table_key(name): name for name, spec in loaded.spec.groups.items() if spec.table}
    if key not in groups:
        known = ", ".join(sorted(each.to_user_string() for each in groups)) or "none"
        raise Failure(
            f"{key.to_user_string()} is not the table of a group (there are: {known}).",
            allow_retries=False,
        )
    return declared_table(loaded, groups[key])
