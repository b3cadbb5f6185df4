"""Workers of tables that are processes of their own, and are killed at a given step.

    python -m tests.support.mortal_tables work FOLDER       with a Spark of its own
    python -m tests.support.mortal_tables commit FILE       what a file says, and dies in between

The first brings one table of each format to each step of a delivery, says so, and waits for its
end. The second is killed by the operating system just before its n-th rename.
"""

import os
import pickle
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dagster_bus.spark.session import session_config, use_this_python
from dagster_bus.spark.tables import Sink, Table, open_sink
from dagster_bus.spec.models import SparkSpec
from tests.support.tables import delivery, numbers

STEPS = ["before writing", "after writing", "before committing", "after committing"]
FORMATS = ["delta", "parquet", "json", "csv"]
READY = "all tables are where they should be"


def table_at(folder: Path, format: str, step: str) -> Table:
    options = {"header": "true"} if format == "csv" else {}
    return Table(str(folder / format / step.replace(" ", "-")), format, options)


def work(folder: Path) -> None:
    spec = SparkSpec(master="local[1]", conf={"spark.ui.enabled": False})
    use_this_python(spec)
    builder: Any = SparkSession.builder
    for name, value in session_config(spec).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for format in FORMATS:
        for step in STEPS:
            _go(open_sink(table_at(folder, format, step), delivery("d1")), step, spark)
    print(READY, flush=True)
    time.sleep(300)


def _go(sink: Sink, step: str, spark: SparkSession) -> None:
    if step == "before writing":
        return
    written = sink.write(numbers(spark, 0, 5))
    if step == "after writing":
        return
    assert not sink.committed()
    if step == "after committing":
        sink.commit(written)


def commit(file: Path) -> None:
    """Call a function, and die before a rename."""
    function, arguments, renames = pickle.loads(file.read_bytes())
    rename = Path.rename

    def mortal(self: Path, target: Path) -> Path:
        nonlocal renames
        renames -= 1
        if renames == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)

    Path.rename = mortal  # type: ignore[assignment,method-assign]
    function(*arguments)


if __name__ == "__main__":
    {"work": work, "commit": commit}[sys.argv[1]](Path(sys.argv[2]))
