"""Workers that are killed at any step leave a table as if they had run once."""

import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from dagster_bus.core.delivery import Delivery
from dagster_bus.errors import LeaseLost
from dagster_bus.spark.tables import Table, Written, open_sink
from dagster_bus.spark.tables.files import FileReplacement
from dagster_bus.spark.tables.folder import Folder
from tests.support.mortal_tables import FORMATS, READY, STEPS, table_at
from tests.support.tables import A, B, deliver, delivery, numbers, rows_of

MORTAL = [sys.executable, "-m", "tests.support.mortal_tables"]


@pytest.fixture(scope="module")
def abandoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables as a worker left them that was killed."""
    folder = tmp_path_factory.mktemp("abandoned")
    with subprocess.Popen([*MORTAL, "work", str(folder)], stdout=subprocess.PIPE, text=True) as it:
        try:
            assert it.stdout is not None
            assert it.stdout.readline().strip() == READY
        finally:
            it.send_signal(signal.SIGKILL)
        assert it.wait() == -signal.SIGKILL
    return folder


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_killed_worker_and_its_successor_leave_the_rows_once(
    spark: SparkSession, abandoned: Path, format: str, step: str
) -> None:
    table = table_at(abandoned, format, step)
    if step == "after committing":
        assert rows_of(table) == {A: [0, 1, 2, 3, 4]}
    successor = open_sink(table, delivery("d1", token=2))
    assert successor.committed() == (step == "after committing")
    if not successor.committed():
        successor.commit(successor.write(numbers(spark, 0, 5)))
    assert rows_of(table) == {A: [0, 1, 2, 3, 4]}
    assert open_sink(table, delivery("d1", token=3)).committed()


def die(folder: Path, before_rename: int, function: Any, *arguments: Any) -> None:
    """Call a function in a process that is killed before one of its renames."""
    file = folder / "order.pickle"
    file.write_bytes(pickle.dumps((function, arguments, before_rename)))
    ended = subprocess.run([*MORTAL, "commit", str(file)], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2_000:]


def commit(table: Table, taken: Delivery, written: Written) -> None:
    open_sink(table, taken).commit(written)


def test_a_worker_that_is_killed_within_its_commit_leaves_no_row_and_no_lock(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(str(tmp_path / "table"), "parquet")
    written = open_sink(table, delivery("d1")).write(numbers(spark, 0, 5))
    die(tmp_path, 1, commit, table, delivery("d1"), written)
    assert rows_of(table) == {}
    successor = open_sink(table, delivery("d1", token=2))
    assert not successor.committed()
    successor.commit(successor.write(numbers(spark, 0, 5)))
    assert rows_of(table) == {A: [0, 1, 2, 3, 4]}


def swap(table: Table, staged: Path) -> None:
    folder = Folder(table)
    with folder.locked():
        folder.swap(A, staged)


@pytest.mark.parametrize("before_rename", [1, 2])
def test_a_replacement_that_is_killed_between_two_renames_is_finished_by_the_next_worker(
    spark: SparkSession, tmp_path: Path, before_rename: int
) -> None:
    table = Table(str(tmp_path / "table"), "parquet")
    deliver(table, delivery("d1", A), numbers(spark, 0, 5))
    deliver(table, delivery("d2", B), numbers(spark, 10, 1))
    staged = Folder(table).spool("mend-1")
    pl.DataFrame({"n": [100, 101]}).write_parquet(staged / "replaced-mend/p.parquet", mkdir=True)
    (staged / "_bus.json").write_text('{"deliveries": ["d1"], "replacements": ["mend"]}')
    die(tmp_path, before_rename, swap, table, staged)
    deliver(table, delivery("d3", B), numbers(spark, 11, 1))
    assert rows_of(table) == {A: [100, 101], B: [10, 11]}
    assert FileReplacement(table, A, name="mend").done()
    assert open_sink(table, delivery("d1", A, token=2)).committed()
    assert Folder(table).spooled() == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_worker_that_lost_its_lease_cannot_commit(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    table = table_at(tmp_path, format, "late")
    late = open_sink(table, delivery("d1"))
    written = late.write(numbers(spark, 0, 5))
    successor = open_sink(table, delivery("d1", token=2))
    with pytest.raises(LeaseLost, match="fenced with token 2, and this worker has 1"):
        late.commit(written)
    with pytest.raises(LeaseLost, match="was taken over"):
        open_sink(table, delivery("d1"))
    successor.commit(successor.write(numbers(spark, 0, 5)))
    with suppress(LeaseLost):  # or it finds that all is done
        late.commit(written)
    assert rows_of(table) == {A: [0, 1, 2, 3, 4]}
