"""`dagster-bus tables`, as a shell sees it."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_bus import Bus
from dagster_bus.spark.tables import Table, open_sink
from tests.integration.test_tables_maintenance import make_older
from tests.support.command import call
from tests.support.project import write_topics
from tests.support.tables import A, B, deliver, delivery, numbers, rows_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_topics(tmp_path)
    with Bus.open(tmp_path / "topics.yaml") as bus:
        bus.publish("orders.created", {"n": 1})
    return tmp_path


def test_tables_are_listed_and_looked_after(spark: SparkSession, folder: Path) -> None:
    table = Table(str(folder / "data/orders"))
    for number, window in enumerate((A, A, B)):
        deliver(table, delivery(f"d{number}", window), numbers(spark, number, 1))
    with Bus.open(folder / "topics.yaml") as bus:
        (slow,) = bus.group("order-table").reserve()
    for id in (slow.id, "dead"):
        open_sink(table, delivery(id, A)).write(numbers(spark, 9, 1))
        make_older(folder / f"data/orders/_window={A}/{id}-1", 200)
    shown = call(folder, "tables", "order-table")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.split()[-6:-1] == [
        "order-table",
        "delta",
        "2",
        "3",
        shown.stdout.split()[-2],
    ]
    (told,) = json.loads(call(folder, "tables", "--json").stdout)
    assert told["path"] == table.path
    assert [(each["window"], each["files"], each["rows"]) for each in told["windows"]] == [
        (A, 2, 2), (B, 1, 1),
    ]  # fmt: skip
    asked = call(folder, "tables", "maintain", "order-table")
    assert (asked.returncode, "add --yes" in asked.stderr) == (4, True)
    done = call(folder, "tables", "maintain", "order-table", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 files became 2" in done.stdout
    assert done.stdout.endswith("1 unneeded file removed\n"), "the open delivery's file stays"
    assert rows_of(table) == {A: [0, 1], B: [2]}


def test_what_cannot_be_is_told_in_one_line(spark: SparkSession, folder: Path) -> None:
    for words, message in (
        (["tables", "nobody"], "group 'nobody' is not declared (declared: order-table)"),
        (["tables", "maintain", "order-table", "--retention", "1m", "--yes"], "Take 1h or more"),
        (
            ["tables", "maintain", "order-table", "--window", A],
            f"has no window {A}, as it is empty",
        ),
    ):
        told = call(folder, *words)
        assert told.returncode == 4, words
        assert message in told.stderr
        assert told.stderr.count("\n") == 1
    empty = call(folder, "tables")
    assert empty.returncode == 0
    assert "order-table" in empty.stdout
