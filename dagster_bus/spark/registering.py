"""A session that knows the bus: its data source, and the settings that serve it."""

from pyspark.sql import SparkSession

from dagster_bus.spark.session import REDACTION, SECRETS
from dagster_bus.spark.source import BusDataSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register_source(spark: SparkSession) -> None:
    """Register the data source, let Spark push filters down to it, and have Spark leave passwords
    out of what it shows. Harmless when repeated."""
    spark.dataSource.register(BusDataSource)
    spark.conf.set(PUSHDOWN, "true")
    redacted = spark.conf.get(REDACTION, "") or ""
    if SECRETS not in redacted:
        spark.conf.set(REDACTION, f"{redacted}|{SECRETS}" if redacted else SECRETS)
