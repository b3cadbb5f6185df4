"""A million events in a table, by processes that start, do that and end: as runs do.

python -m benchmarks.spark_runs FROM FORM TABLE COUNT

FROM is a store or a folder of JSON files, FORM what the files are lines of: events or payloads.

Both open Spark with the same settings and write the same rows to a table of the same kind.
"""

import subprocess
import sys
from functools import partial
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from benchmarks.events import TOPIC, remove
from benchmarks.measuring import Comparison, Prepared, compare
from benchmarks.spark_files import COLUMNS, FORMS, Form
from dagster_bus.core.topic import OffsetRange
from dagster_bus.spark.handover import Selection, handed_over
from dagster_bus.spark.session import session_config, use_this_python
from dagster_bus.spark.tables import Table, replace_window
from dagster_bus.spec.models import SparkSpec

WINDOW = "2026-11-18-00:00"
ROUNDS = 3
TIMEOUT_S = 300


def compare_runs(
    folder: Path, store: str, files: str, form: Form, count: int, goal: float | None = None
) -> Comparison:
    return compare(
        f"SQLite to a typed Delta table, a run with its own Spark: {form.name}",
        count,
        f"Spark, JSON files of {form.name}, in a process of its own",
        partial(_process, folder, files, form, count),
        partial(_process, folder, store, form, count),
        goal,
        ROUNDS,
    )


def _process(folder: Path, source: str, form: Form, count: int) -> Prepared:
    table = folder / uuid4().hex
    asked = [source, form.name, str(table), str(count)]

    def work() -> None:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_runs", *asked],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=TIMEOUT_S,
        )

    return work, lambda: remove(table)


def main(source: str, form: Form, table: str, count: int) -> None:
    if "://" not in source:
        _write(form.rows(open_session(), source), table, count)
        return
    asked = Selection(source, [OffsetRange(TOPIC, 0, 1, count)], columns=COLUMNS)
    with handed_over(open_session, asked) as events:
        _write(events.frame.select(*form.handed), table, count)


def open_session() -> SparkSession:
    from dagster_pyspark.resources import spark_session_from_config

    spec = SparkSpec()
    use_this_python(spec)
    session: SparkSession = spark_session_from_config(session_config(spec))  # type: ignore[no-untyped-call]
    return session


def _write(rows: DataFrame, table: str, count: int) -> None:
    written = replace_window(Table(table), WINDOW, rows, name="bench")
    assert written is not None
    assert written.rows == count


if __name__ == "__main__":
    main(sys.argv[1], FORMS[sys.argv[2]], sys.argv[3], int(sys.argv[4]))
