"""Reading the log through Spark: the embedded store beside Spark's own JSON reader on the same
events, MongoDB, by one reader and by two, beside the driver's `find`, and a large window's memory.

python -m benchmarks.spark_source             some minutes; writes benchmarks/results/spark_source.*
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

from benchmarks.events import TOPIC, new_folder, open_bus, remove, stream
from benchmarks.measuring import (
    Comparison,
    Fact,
    Prepared,
    compare,
    machine,
    out,
    seconds,
    show,
    write,
)
from benchmarks.spark_files import COLUMNS, DDL, EVENTS, FORMS, PAYLOADS, Form
from benchmarks.spark_memory import window_memory
from benchmarks.spark_runs import WINDOW, compare_runs
from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.spark import register
from dagster_bus.spark.handover import Selection, handed_over
from dagster_bus.spark.source import FORMAT
from dagster_bus.spark.tables import Table, replace_window
from dagster_bus.stores.arrow import pieces, read_batches
from tools.mongodb import ReplicaSet

TITLE = "The log read by Spark"
BATCH = 10_000
ROUNDS = 3

Prepare = Callable[[], Prepared]
Work = Callable[[str, OffsetRange], int]


def embedded(count: int) -> Iterator[Comparison]:
    """The whole log into a Delta table, as runs bring it there, and through the data source into a
    sink that forgets it; beside files of the same events, and of their payloads alone."""
    folder = new_folder()
    try:
        url = f"sqlite:///{folder}/bus.db"
        _publish(url, count)
        with open_bus(url) as log:
            files = {form: form.files(log, folder / form.name) for form in FORMS.values()}
        for form, goal in ((EVENTS, 1.0), (PAYLOADS, None)):
            yield compare_runs(folder, url, files[form], form, count, goal)
        spark = _session()
        for form in FORMS.values():
            what = (
                f"SQLite to a typed Delta table, in a session that has done it before: {form.name}"
            )
            raw = partial(_table_of, folder, form.rows(spark, files[form]))
            yield _beside(
                what, form, count, raw, partial(_delivered, folder, spark, url, form, count)
            )
        source = spark.read.format(FORMAT).option("store", url).option("topics", TOPIC)
        parsed = source.load().selectExpr(f"from_json(payload, '{DDL}') AS p").select("p.*")
        json = PAYLOADS.rows(spark, files[PAYLOADS])
        what = "SQLite through the data source, read only"
        yield _beside(what, PAYLOADS, count, partial(_noop, json), partial(_noop, parsed))
        spark.stop()
    finally:
        remove(folder)


def _beside(what: str, form: Form, count: int, raw: Prepare, bus: Prepare) -> Comparison:
    for prepare in (raw, bus):
        seconds(prepare)  # the first time Spark compiles, and starts its Python processes
    return compare(what, count, f"Spark, JSON files of {form.name}", raw, bus, rounds=ROUNDS)


def _table_of(folder: Path, rows: DataFrame) -> Prepared:
    """Rows written and committed as a run does it."""
    table = Table(str(folder / uuid4().hex))
    return lambda: _write(table, rows), lambda: remove(Path(table.path))


def _delivered(folder: Path, spark: SparkSession, url: str, form: Form, count: int) -> Prepared:
    """The same from the store, on the way that the events of a delivery take."""
    table = Table(str(folder / uuid4().hex))
    asked = Selection(url, [OffsetRange(TOPIC, 0, 1, count)], columns=COLUMNS)

    def work() -> None:
        with handed_over(lambda: spark, asked) as events:
            assert events.count() == count
            _write(table, events.frame.select(*form.handed))

    return work, lambda: remove(Path(table.path))


def _write(table: Table, rows: DataFrame) -> None:
    replace_window(table, WINDOW, rows, name="bench")


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
                    0.6,
                    ROUNDS,
                )
    finally:
        remove(folder)


def large_window(count: int) -> Fact:
    folder = new_folder()
    try:
        url = f"sqlite:///{folder}/bus.db"
        _publish(url, count)
        return window_memory(url, count, folder / "table")
    finally:
        remove(folder)


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
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
    facts = [] if quick else [large_window(10_000_000)]
    show(comparisons, facts)
    if not quick:
        about = machine("pyspark", "pyarrow", "adbc-driver-sqlite", "pymongo")
        write("spark_source", TITLE, about, comparisons, facts)


if __name__ == "__main__":
    main()
