"""A real Spark session, shared by the tests that need one, and a Dagster for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster_pyspark.resources import spark_session_from_config
from pyspark.sql import SparkSession

from dagster_bus.spark.session import session_config, use_this_python
from dagster_bus.spec.models import SparkSpec
from tests.support.dagster_project import Project
from tests.support.project import write_topics


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


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path, instance: DagsterInstance) -> Project:
    return Project(write_topics(tmp_path), instance)


@pytest.fixture
def impatient(tmp_path: Path, instance: DagsterInstance) -> Project:
    """A project whose reservations end at once."""
    return Project(
        write_topics(tmp_path, **{"launch_timeout: 60s": "launch_timeout: 1ms"}), instance
    )
