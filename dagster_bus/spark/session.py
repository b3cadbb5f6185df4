"""The settings of the Spark session that `topics.yaml` asks for."""

import os
import sys

from dagster_bus.spec.models import SparkSpec

DEFAULTS = {
    "spark.app.name": "dagster-bus",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session_config(spark: SparkSpec) -> dict[str, str]:
    """Spark settings in Spark's own spelling; the file's win over the defaults."""
    return {
        **DEFAULTS,
        **(LOOPBACK if _is_local(spark) else {}),
        "spark.master": spark.master,
        **{name: _spelled(value) for name, value in spark.conf.items()},
    }


def use_this_python(spark: SparkSpec) -> None:
    """Have the Python workers of a local session run in this environment; Spark would take the
    first python3 on the PATH. Spark reads this from the environment only."""
    if _is_local(spark):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _is_local(spark: SparkSpec) -> bool:
    return spark.master.startswith("local")


def _spelled(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
