"""Windows made anew from the log, whatever the live group does at the same time."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Message
from dagster_bus.core.letters import Chosen
from dagster_bus.core.store import Tally
from dagster_bus.core.topic import TopicPartition
from dagster_bus.core.window import DAILY, HOUR_MS, HOURLY
from dagster_bus.errors import EventsGone, PipelineError, TableError, WindowChanged
from dagster_bus.spark.expecting import Expectation
from dagster_bus.spark.pipeline import ONLY
from dagster_bus.spark.recomputing import Recomputed, recompute
from dagster_bus.spark.tables import Table, open_sink, read_table, replace_window
from tests.conftest import new_store_url
from tests.support.spark_work import Workshop
from tests.support.tables import deliver, delivery, numbers, rows_of

NOW = system_clock()
WINDOW = HOURLY.at(NOW)


class Desk(Workshop):
    """An operator beside a group."""

    def says(self, *numbers: int, ts: int = NOW) -> None:
        """Publish events of the window, or of another time."""
        self.publish(*(Message({"n": n, "name": "x"}, ts=ts) for n in numbers))

    def lives(self, *numbers: int) -> None:
        """Publish events and have them delivered."""
        self.says(*numbers)
        self.run()

    def anew(self, name: str = "mend") -> Recomputed:
        return recompute(
            lambda: self._spark, self.work, self.group, WINDOW, name=name, worker="operator"
        )

    def gives_tenfold(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Let the pipeline give other rows, while something happens when it is used next."""
        todo = [meanwhile]

        def pipeline(events: DataFrame) -> DataFrame:
            if todo:
                todo.pop()()
            return events.selectExpr("n * 10 AS n", "name", "_event")

        self.does(pipeline)


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(spark, new_store_url("sqlite", tmp_path), tmp_path)
    with desk.bus:
        yield desk


@pytest.fixture(
    params=[("sqlite", "delta"), ("sqlite", "parquet"), ("mongo", "delta")], ids="-".join
)
def shown(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[tuple[Desk, str]]:
    """On every store, and with every kind of table."""
    kind, format = request.param
    desk = Desk(spark, new_store_url(kind, tmp_path), tmp_path)
    with desk.bus:
        yield desk, format


def test_a_window_has_the_rows_of_todays_pipeline_and_the_others_stay(
    shown: tuple[Desk, str], tmp_path: Path
) -> None:
    desk, format = shown
    table = Table(str(tmp_path / "table"), format)
    desk.work = replace(desk.work, tables={ONLY: table})
    before = HOURLY.at(NOW - HOUR_MS).key
    desk.says(1, 2, ts=NOW - HOUR_MS)
    desk.run()
    desk.lives(3, 4, 5)
    account = desk.group.progress()
    found = desk.anew("same")
    assert (found.rows, found.events, found.to_come, found.dead) == (3, 3, 0, 0)
    assert rows_of(table) == {before: [1, 2], WINDOW.key: [3, 4, 5]}
    desk.gives_tenfold()
    desk.anew()
    assert rows_of(table) == {before: [1, 2], WINDOW.key: [30, 40, 50]}
    assert desk.group.progress() == account, "cursors and account stay"
    desk.does(lambda events: events.filter("false").select("n", "name"))
    assert desk.anew("emptied").rows == 0
    assert rows_of(table) == {before: [1, 2]}


def test_a_window_without_events_or_without_a_table_is_empty(desk: Desk) -> None:
    assert desk.anew() == Recomputed(rows=0, events=0, filtered=0, to_come=0, dead=0)
    desk.lives(1)
    assert desk.numbers() == [1]


def test_what_is_still_to_come_comes_with_its_own_delivery(desk: Desk) -> None:
    desk.lives(1, 2)
    desk.says(3)
    held = desk.take()
    desk.says(4)
    desk.gives_tenfold()
    found = desk.anew()
    assert (found.events, found.to_come) == (2, 2)
    assert desk.numbers() == [10, 20]
    desk.run(held)
    desk.run()
    assert desk.numbers() == [10, 20, 30, 40]
    assert desk.group.progress().tally == Tally(processed=4)


def test_a_delivery_that_commits_meanwhile_is_there_once(desk: Desk) -> None:
    desk.lives(1, 2)
    desk.says(3, 4)
    held = desk.take()
    desk.gives_tenfold(meanwhile=lambda: desk.run(held))
    found = desk.anew()
    assert found.events == 4, "it was decided anew"
    assert desk.numbers() == [10, 20, 30, 40]


def committed(desk: Desk, held: Delivery) -> None:
    """The worker of a delivery dies between its commit and its word."""
    sink = open_sink(desk.work.tables[ONLY], held)
    events = desk._spark.createDataFrame([(3, "x")], "n bigint, name string")
    sink.commit(sink.write(events))


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_delivery_that_has_committed_and_not_settled_is_made_anew(
    desk: Desk, format: str
) -> None:
    table = Table(str(desk.folder / "table"), format)
    desk.work = replace(desk.work, tables={ONLY: table})
    desk.lives(1, 2)
    desk.says(3)
    held = desk.take()
    committed(desk, held)
    desk.gives_tenfold()
    assert desk.anew().events == 3
    assert rows_of(table) == {WINDOW.key: [10, 20, 30]}
    assert desk.run(held)["already in the table"] is True
    assert rows_of(table) == {WINDOW.key: [10, 20, 30]}


def test_several_tables_have_a_delivery_all_or_none_though_it_came_into_one_only(
    desk: Desk,
) -> None:
    desk.gives("a", "b")
    desk.does(lambda events: {"a": events.select("n"), "b": events.select("n")})
    desk.lives(1)
    desk.says(2)
    held = desk.take()
    sink = open_sink(desk.work.tables["a"], held)
    sink.commit(sink.write(desk._spark.createDataFrame([(2,)], "n bigint")))
    assert desk.anew().events == 2
    assert (desk.numbers("a"), desk.numbers("b")) == ([1, 2], [1, 2])
    assert desk.run(held)["already in the table"] is True
    assert (desk.numbers("a"), desk.numbers("b")) == ([1, 2], [1, 2])


def test_a_window_that_never_comes_to_rest_is_left_alone(desk: Desk) -> None:
    desk.lives(0)
    count = iter(range(1, 1_000))

    def pipeline(events: DataFrame) -> DataFrame:
        sink = open_sink(desk.work.tables[ONLY], replace(held, id=f"other-{next(count)}"))
        sink.commit(
            sink.write(events.sparkSession.createDataFrame([(7, "y")], "n int, name string"))
        )
        return events.select("n", "name")

    desk.says(1)
    held = desk.take()
    desk.does(pipeline)
    with pytest.raises(WindowChanged, match="has changed since"):
        desk.anew()
    assert 0 in desk.numbers()


def test_refused_events_become_dead_letters_once_and_can_come_back(desk: Desk) -> None:
    desk.lives(1, 2, 3)
    desk.gives_tenfold()
    desk.work = replace(desk.work, expectations=(Expectation("small", "n < 30"),))
    assert desk.anew().refused == {"expect.small: n < 30": 1}
    assert desk.numbers() == [10, 20]
    (letter,) = desk.letters()
    assert letter.event.payload == {"n": 3, "name": "x"}
    assert (letter.errors[0].type, letter.errors[0].worker) == ("EventRefused", "operator")
    assert desk.group.progress().tally == Tally(processed=2, dead_lettered=1)
    again = desk.anew("again")
    assert (again.refused, again.dead) == ({}, 1)
    assert len(desk.letters()) == 1
    assert desk.group.progress().tally == Tally(processed=2, dead_lettered=1)

    patch = [{"op": "replace", "path": "/n", "value": 2}]
    list(desk.bus.dead_letters("readers").redrive(Chosen(ids=(letter.id,)), patch=patch))
    assert desk.anew("on-its-way").to_come == 1
    desk.run()
    assert desk.numbers() == [10, 20, 20]
    assert desk.anew("patched").events == 3
    assert desk.numbers() == [10, 20, 20], "what was sent back is read as it was sent"

    desk.work = replace(desk.work, expectations=(Expectation("smaller", "n < 20"),))
    assert desk.anew("refused-twice").refused == {"expect.smaller: n < 20": 2}
    assert desk.numbers() == [10]
    assert [each.event.payload["n"] for each in desk.letters()] == [2, 2]
    assert desk.group.progress().tally == Tally(processed=1, dead_lettered=2)
    assert desk.group.progress().lag == 0


def test_a_pipeline_that_fails_changes_nothing(desk: Desk) -> None:
    desk.lives(1, 2)
    desk.does(lambda events: events.select("no_such_column"))
    with pytest.raises(Exception, match="no_such_column"):
        desk.anew()
    assert desk.numbers() == [1, 2]
    desk.gives_tenfold()
    strict = Expectation("small", "n < 20", "fail")
    desk.work = replace(desk.work, expectations=(strict,))
    with pytest.raises(PipelineError):
        desk.anew()
    assert desk.numbers() == [1, 2]
    assert desk.letters() == []


def test_a_window_that_the_log_does_not_have_any_more_is_left_alone(desk: Desk) -> None:
    desk.lives(1, 2, 3, 4)
    for partition in (0, 1):
        desk.group._store.trim(TopicPartition("orders", partition), 2, 100)
    desk.gives_tenfold()
    with pytest.raises(EventsGone, match="the log begins at offset 2"):
        desk.anew()
    assert desk.numbers() == [1, 2, 3, 4]


def test_a_table_that_was_divided_otherwise_is_left_alone(desk: Desk) -> None:
    desk.lives(1, 2)
    daily = replace(desk.group.config, windows=DAILY)
    group = type(desk.group)(daily, desk.group._store, system_clock)
    with pytest.raises(TableError, match="which is none of the group's windows"):
        recompute(
            lambda: desk._spark, desk.work, group, DAILY.at(NOW), name="mend", worker="operator"
        )
    assert desk.numbers() == [1, 2]


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_the_hour_that_comes_twice_is_two_windows_of_a_table(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    table = Table(str(tmp_path / "table"), format)
    first, second = "2026-10-25T02", "2026-10-25T02+0100"
    deliver(table, delivery("d1", first), numbers(spark, 1, 2))
    deliver(table, delivery("d2", second), numbers(spark, 3, 2))
    replace_window(table, second, numbers(spark, 30, 1), name="mend")
    assert rows_of(table) == {first: [1, 2], second: [30]}
    found = read_table(spark, table, [second])
    assert found is not None
    assert [(row.n, row["_window"]) for row in found.collect()] == [(30, second)]
