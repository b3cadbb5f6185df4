"""The settings of the Spark session that `topics.yaml` asks for. No session is opened here."""

import os
import sys
from collections.abc import Mapping

from dagster_bus.spec.models import SparkSpec

MASTER = "spark.master"
REMOTE = "spark.remote"
PACKAGES = "spark.jars.packages"

REDACTION = "spark.sql.redaction.string.regex"
SECRETS = "|".join(
    (
        r'(?<=://)[^\s"/@]+(?=@)',  # user and password in a URL
        r'(?<="fs\.s3a\.(access\.key|secret\.key|session\.token)"\s{1,80}value: ")[^"]+',
    )
)
"""What is not to be shown, in Java's notation. A Spark Connect server writes the options of a
query, as text, into its log of events and into its pages."""

DEFAULTS = {
    "spark.app.name": "dagster-bus",
    REDACTION: SECRETS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
}
"""What a JVM takes beside its heap, and this process, stay below 1.5 GB with it."""


def session_config(spark: SparkSpec) -> dict[str, str]:
    """Spark settings in Spark's own spelling; the file's win over the defaults."""
    conf = {name: spelled(value) for name, value in spark.conf.items()}
    if spark.packages:
        named = [conf[PACKAGES]] if PACKAGES in conf else []
        conf[PACKAGES] = ",".join([*named, *spark.packages])
    where = {REMOTE: spark.remote} if spark.remote else {MASTER: spark.master}
    wanted = {**where, **conf}
    if REMOTE in conf:  # Spark refuses to have both
        wanted.pop(MASTER, None)
    return {**DEFAULTS, **(LOCAL if is_local(wanted) else {}), **wanted}


def is_local(config: Mapping[str, str]) -> bool:
    """Whether settings ask for a Spark on this machine, inside the process that opens it."""
    return REMOTE not in config and config[MASTER].startswith("local")


def use_this_python(spark: SparkSpec) -> None:
    """Have the Python workers of a local session run in this environment; Spark would take the
    first python3 on the PATH. Spark reads this from the environment only."""
    if is_local(session_config(spark)):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def spelled(value: str | int | float | bool) -> str:
    """A value of the file as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
