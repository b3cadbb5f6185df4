"""A real Spark session, shared by the tests that need one."""

from collections.abc import Iterator

import pytest
from dagster_pyspark.resources import spark_session_from_config
from pyspark.sql import SparkSession

from dagster_bus.spark.session import session_config, use_this_python
from dagster_bus.spec.models import SparkSpec


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spec = SparkSpec(
        master="local[2]",
        conf={"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2},
    )
    use_this_python(spec)
    session = spark_session_from_config(session_config(spec))  # type: ignore[no-untyped-call]
    yield session
    session.stop()
