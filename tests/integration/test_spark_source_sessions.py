"""The data source in sessions of other kinds: found without a call, on a cluster whose executors
are processes of their own, and through Spark Connect."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import STORES, new_store_url
from tests.integration.test_spark_source import with_user
from tests.support.spark_source import open_bus, publish, published

PROJECT = Path(__file__).parents[2]
SPARK_CLASS = Path(sys.executable).parent / "spark-class"
PATIENCE_S = 500
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

START = """
import json, os, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

urls, folder, conf = sys.argv[3:], sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder
if "spark.remote" in conf:
    builder = builder.remote(conf.pop("spark.remote"))
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
told = {}


def read(url, **options):
    given = {"store": url, "topics": "orders.*"} | options
    return spark.read.format("dagster_bus").options(**given).load()


def write(url, rows, **options):
    given = {"store": url, "topic": "out"} | options
    rows.write.format("dagster_bus").options(**given).mode("append").save()

"""
END = """
spark.stop()
print("told", json.dumps(told))
"""


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    loopback = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
    return {**os.environ, **loopback, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


def session(script: str, urls: list[str], folder: Path, **conf: str) -> dict[str, Any]:
    """Run a script in a fresh session, and return what it tells."""
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **LOOPBACK}
    asked = json.dumps(settings | {name.replace("_", "."): value for name, value in conf.items()})
    done = subprocess.run(
        [sys.executable, "-c", START + script + END, str(folder), asked, *urls],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    told: dict[str, Any] = json.loads(line.removeprefix("told "))
    return {**told, "output": done.stdout + done.stderr}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers, each a process on this machine."""
    folder = tmp_path_factory.mktemp("cluster")
    spark = "org.apache.spark.deploy"
    processes = [start(folder, f"{spark}.master.Master", "--port", "0", "--webui-port", "0")]
    try:
        address = await_line(folder / "Master.log", "Starting Spark master at ").split()[-1]
        for name in ("one", "two"):
            (folder / name).mkdir()
            options = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            options += ["--work-dir", str(folder / name), address]
            processes.append(start(folder, f"{spark}.worker.Worker", *options))
        yield address
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def start(folder: Path, name: str, *options: str) -> "subprocess.Popen[bytes]":
    with (folder / f"{name.split('.')[-1]}.log").open("ab") as log:
        return subprocess.Popen(
            [SPARK_CLASS, name, "--host", "127.0.0.1", *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment() | {"SPARK_DAEMON_MEMORY": "256m"},
        )


def await_line(file: Path, words: str) -> str:
    for _ in range(600):
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            if words in line:
                return line
        time.sleep(0.1)
    raise AssertionError(file.read_text(encoding="utf-8")[-2_000:])


ON_THE_CLUSTER = """
assert "dagster_bus" not in sys.modules, "the source is to be found without being told of"


def failing_once(url):
    def run(batches):
        # Not before others see that a part of this task's own rows was published.
        import time
        from pyspark import TaskContext
        from dagster_bus.core.topic import OffsetRange
        from dagster_bus.stores import open_store
        yield from batches
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 0:
            with open_store(url, create=False) as store:
                for _ in range(600):
                    for at, each in store.bounds(["out"]).items():
                        for event in store.iterate(OffsetRange(*at, 1, each.end - 1)):
                            if event.payload["n"] < 1000:
                                raise RuntimeError("the first attempt dies")
                    time.sleep(0.1)
    return run


told["counts"] = [read(url, minPartitions="4").where("offset > 1").count() for url in urls]
told["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
rows = spark.range(2000, numPartitions=2).selectExpr("id AS n", "repeat('x', 500) AS text")
for url in urls:
    write(url, rows.mapInArrow(failing_once(url), "n bigint, text string"))
"""


def test_executors_of_a_cluster_read_and_write_and_a_task_that_dies_writes_nothing_twice(
    cluster: str, tmp_path: Path
) -> None:
    urls = [new_store_url(kind, tmp_path) for kind in STORES]
    for url in urls:
        with open_bus(url) as bus:
            publish(bus, "orders.created", range(200))
    told = session(
        ON_THE_CLUSTER,
        urls,
        tmp_path,
        spark_master=cluster,
        spark_executor_memory="512m",
        spark_executor_cores="1",
        spark_sql_execution_arrow_maxRecordsPerBatch="100",
    )
    assert told["output"].count("the first attempt dies") >= len(urls)
    assert told["executors"] == 2
    assert told["counts"] == [198] * len(urls)
    for url in urls:
        with open_bus(url) as bus:
            assert published(bus) == list(range(2_000))


THROUGH_CONNECT = """
url, safe = urls
told["found"] = read(safe).count()
from dagster_bus.spark import register
register(spark)
write(url, read(url).select("payload"), writeId="once")
query = (
    spark.readStream.format("dagster_bus").option("store", url).option("topics", "orders.*")
    .option("startingOffsets", "earliest").load()
    .selectExpr("payload").writeStream.format("dagster_bus").option("store", url)
    .option("topic", "out").option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start()
)
told["ended"] = query.awaitTermination(120)
read(url).explain(True)
try:
    read(url, topics="nothing").count()
except Exception as error:
    told["error"] = str(error)
"""


def test_spark_connect_finds_reads_writes_and_streams_and_logs_no_password(
    mongo_database_url: str, tmp_path: Path
) -> None:
    """The server writes each query, with its options, into its log of events. Before the source is
    registered it is only found, so the first query has an address without a password."""
    secret = "s3cr3t-of-the-store"
    url = with_user(mongo_database_url, secret)
    (tmp_path / "events").mkdir()
    with open_bus(mongo_database_url) as bus:
        publish(bus, "orders.created", range(20))
        told = session(
            THROUGH_CONNECT,
            [url, mongo_database_url],
            tmp_path,
            spark_remote="local[2]",
            spark_eventLog_enabled="true",
            spark_eventLog_compress="false",
            spark_eventLog_dir=(tmp_path / "events").as_uri(),
        )
        assert (told["found"], told["ended"]) == (20, True)
        assert published(bus) == sorted([*range(20), *range(20)])
    assert "'nothing' selects none of the store's topics" in told["error"]
    logged = "".join(
        file.read_text(encoding="utf-8", errors="replace")
        for file in (tmp_path / "events").rglob("*")
        if file.is_file()
    )
    assert "redacted" in logged
    assert secret not in logged
    assert secret not in told["output"]


def test_without_the_libraries_for_spark_other_sources_are_not_disturbed() -> None:
    """Spark imports the package while it looks for sources of any kind."""
    code = (
        "import sys; sys.modules['pyarrow'] = None; import pyspark_dagster_bus; "
        "print(hasattr(pyspark_dagster_bus, 'DefaultSource'))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
