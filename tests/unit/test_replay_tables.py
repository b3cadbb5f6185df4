"""Where the rows of a replay go."""

from dagster_bus.orchestration.replaying import tables_beside
from dagster_bus.spark.pipeline import ONLY
from dagster_bus.spark.tables import Table


def test_the_tables_of_a_replay_lie_beside_the_groups_folder() -> None:
    table = Table("s3://lake/orders/", "parquet", {"compression": "zstd"})
    assert tables_beside({ONLY: table}, "again") == {
        ONLY: Table("s3://lake/orders__replay_again", "parquet", {"compression": "zstd"})
    }
    named = {name: table.named(name) for name in ("good", "bad")}
    assert {name: each.path for name, each in tables_beside(named, "again").items()} == {
        "good": "s3://lake/orders__replay_again/good",
        "bad": "s3://lake/orders__replay_again/bad",
    }
