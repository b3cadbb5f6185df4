"""The session that a project gives its runs, asked in a process of its own.

python -m tests.support.sessions TOPICS.YAML [SETTING …]
    the definitions are loaded while no server can be found, then the session is opened
"""

import json
import os
import sys

from dagster import build_init_resource_context
from dagster_pyspark import PySparkResource
from pyspark.sql import SparkSession

from dagster_bus import Bus, load_definitions
from dagster_bus.spark.frames import frame_of
from dagster_bus.spark.warm import FOLDER


def main(file: str) -> None:
    os.environ[FOLDER] = "/nowhere"
    resource = (load_definitions(file).resources or {})["pyspark"]
    del os.environ[FOLDER]
    assert isinstance(resource, PySparkResource)
    resource.setup_for_execution(build_init_resource_context())
    spark = resource.spark_session
    told: dict[str, object] = {
        "session": type(spark).__module__,
        "settings": {key: spark.conf.get(key, None) for key in sys.argv[2:]},
        "jars": [row[0].rpartition("/")[2] for row in spark.sql("LIST JARS").collect()],
        "letters": _letters(spark, file),
    }
    resource.teardown_after_execution(build_init_resource_context())
    told["mode left on"] = "SPARK_CONNECT_MODE_ENABLED" in os.environ
    print(json.dumps(told))


def _letters(spark: SparkSession, file: str) -> list[int]:
    """Events at hand, as those of a redriven delivery, on their way through the session."""
    with Bus.open(file) as bus:
        bus.publish_many("stock", [{"n": 1}, {"n": 2}])
        events = list(bus.read("stock"))[-2:]
    rows = frame_of(spark, events, {"n": "bigint"}).collect()
    return [row.n for row in rows]


if __name__ == "__main__":
    main(sys.argv[1])
