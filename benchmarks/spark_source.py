"""Reading the log through Spark: the embedded store beside Spark's own JSON reader on the same
events, and MongoDB, by one reader and by two, beside the driver's `find`.

python -m benchmarks.spark_source             some minutes; writes benchmarks/results/spark-source.*
python -m benchmarks.spark_source --quick     a taste, which writes no results
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from uuid import uuid4

from pymongo import MongoClient
from pyspark.sql import DataFrame, SparkSession

from benchmarks.events import TOPIC, new_folder, open_bus, remove, stream, texts
from benchmarks.measuring import (
    Comparison,
    Prepared,
    compare,
    machine,
    out,
    show,
    write,
)
from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.spark import register
from dagster_bus.spark.source import FORMAT
from dagster_bus.stores.arrow import pieces, read_batches
from tools.mongodb import ReplicaSet

TITLE = "The log read by Spark"
BATCH = 10_000
ROUNDS = 3
COLUMNS = "order_id string, note string"

Work = Callable[[str, OffsetRange], int]


def embedded(count: int) -> Iterator[Comparison]:
    """The whole log into a sink that forgets it, beside files of one event a line."""
    folder = new_folder()
    spark = _session()
    try:
        url = f"sqlite:///{folder}/bus.db"
        _publish(url, count)
        files = _json_files(folder / "json", count)
        log = spark.read.format(FORMAT).option("store", url).option("topics", TOPIC)
        yield _beside(spark.read.text(files), log.load(), count, "as text", "text files")
        parsed = log.load().selectExpr(f"from_json(payload, '{COLUMNS}') AS p").select("p.*")
        json = spark.read.schema(COLUMNS).json(files)
        yield _beside(json, parsed, count, "as columns", "JSON files")
    finally:
        spark.stop()
        remove(folder)


def _beside(raw: DataFrame, bus: DataFrame, count: int, how: str, what: str) -> Comparison:
    for frame in (raw, bus):
        _noop(frame)[0]()  # the first time Spark compiles, and starts its Python processes
    return compare(
        f"SQLite into Spark, payload {how}",
        count,
        f"Spark, {what}",
        partial(_noop, raw),
        partial(_noop, bus),
        rounds=ROUNDS,
    )


def mongo(count: int) -> Iterator[Comparison]:
    """Arrow batches by one and by two processes, beside as many that call `find`."""
    folder = new_folder()
    try:
        with ReplicaSet(folder, members=1) as servers:
            url = servers.url(f"bench_{uuid4().hex[:8]}")
            _publish(url, count)
            for readers in (1, 2):
                yield compare(
                    f"MongoDB into Arrow, {readers} reader{'s' * (readers > 1)}",
                    count,
                    "raw MongoDB, find",
                    partial(_in_processes, _find, url, count, readers),
                    partial(_in_processes, _read, url, count, readers),
                    rounds=ROUNDS,
                )
    finally:
        remove(folder)


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    register(spark)
    return spark


def _publish(url: str, count: int) -> None:
    events = stream(count)
    with open_bus(url) as bus:
        for _ in bus.publish_stream(TOPIC, events, BATCH):
            pass


def _json_files(folder: Path, count: int) -> str:
    """As many files as there are cores, so that all of them work."""
    folder.mkdir()
    lines, parts = texts(count), os.cpu_count() or 1
    for part in range(parts):
        text = "\n".join(lines[part::parts])
        (folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    return str(folder)


def _noop(frame: DataFrame) -> Prepared:
    return lambda: frame.write.format("noop").mode("overwrite").save(), lambda: None


def _in_processes(work: Work, url: str, count: int, readers: int) -> Prepared:
    """Processes that are running already, each with its share of the log."""
    pool = ProcessPoolExecutor(readers, mp_context=get_context("spawn"))
    shares = pieces([OffsetRange(TOPIC, 0, 1, count)], -(-count // readers))
    list(pool.map(work, [url] * readers, [OffsetRange(TOPIC, 0, 1, 1)] * readers))

    def run() -> None:
        assert sum(pool.map(work, [url] * readers, shares)) == count

    return run, pool.shutdown


def _find(url: str, span: OffsetRange) -> int:
    with MongoClient[dict[str, object]](url) as client:
        events = client.get_default_database()["events"]
        offsets = {"$gte": span.first, "$lte": span.last}
        asked = {"topic": TOPIC, "partition": 0, "offset": offsets}
        return sum(1 for _ in events.find(asked, batch_size=5_000).sort("offset"))


def _read(url: str, span: OffsetRange) -> int:
    return sum(batch.num_rows for batch in read_batches(url, span, EventFilter()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure reading through Spark.")
    parser.add_argument("--quick", action="store_true", help="few events, and no results written")
    quick = parser.parse_args().quick
    comparisons = []
    for section in (embedded(100_000 if quick else 1_000_000), mongo(20_000 if quick else 200_000)):
        for comparison in section:
            out.print(f"{comparison.what}: {comparison.ratio:.2f}")
            comparisons.append(comparison)
    show(comparisons, [])
    if not quick:
        about = machine("pyspark", "pyarrow", "adbc-driver-sqlite", "pymongo")
        write("spark-source", TITLE, about, comparisons, [])


if __name__ == "__main__":
    main()
