"""Pipelines and queries, what is expected of their rows, and what becomes of events they refuse."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import Failure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.groups import Group
from dagster_bus.core.store import Tally
from dagster_bus.core.topic import TopicPartition
from dagster_bus.spark import processing
from dagster_bus.spark.expecting import Expectation
from dagster_bus.spark.pipeline import query_pipeline
from dagster_bus.spark.tables.delta import DeltaSink
from tests.support.spark_work import Workshop

POSITIVE = Expectation("positive", "n > 0")


@pytest.fixture
def shop(spark: SparkSession, store_url: str, tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(spark, store_url, tmp_path)
    with workshop.bus:
        yield workshop


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> Iterator[Workshop]:
    """On the embedded store, for what a store has no part in."""
    workshop = Workshop(spark, f"sqlite:///{tmp_path}/bus.db", tmp_path)
    with workshop.bus:
        yield workshop


def keep(events: DataFrame) -> DataFrame:
    return events.select("n", "name", "_event")


def test_a_query_gives_the_rows_with_parameters_from_the_file(small: Workshop) -> None:
    small.does(
        query_pipeline("SELECT n * :by AS n FROM events WHERE n > :least", {"by": 10, "least": 1})
    )
    small.publish({"n": 1}, {"n": 2}, {"n": 3})
    assert small.run()["rows"] == 2
    assert small.numbers() == [20, 30]
    assert small.group.progress().tally == Tally(processed=3)


def test_several_results_are_several_tables(small: Workshop) -> None:
    small.gives("even", "odd")
    small.does(lambda events: {"even": events.where("n % 2 = 0"), "odd": events.where("n % 2 = 1")})
    small.publish({"n": 1}, {"n": 2}, {"n": 3})
    assert small.run()["rows"] == 3
    assert (small.numbers("even"), small.numbers("odd")) == ([2], [1, 3])


def test_a_worker_that_dies_between_two_tables_is_followed_by_one_that_fills_the_other(
    small: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.gives("one", "two")
    small.does(lambda events: {"one": keep(events), "two": keep(events)})
    small.publish({"n": 1}, {"n": 2})
    commit = DeltaSink.commit

    def die_over_two(sink: DeltaSink, written: object) -> None:
        if sink._place.path.endswith("two"):
            raise KeyboardInterrupt
        commit(sink, written)  # type: ignore[arg-type]

    with monkeypatch.context() as fault:
        fault.setattr(DeltaSink, "commit", die_over_two)
        with pytest.raises(KeyboardInterrupt):
            small.run()
    assert (small.numbers("one"), small.numbers("two")) == ([1, 2], [])
    assert small.run()["already in the table"] is False
    assert (small.numbers("one"), small.numbers("two")) == ([1, 2], [1, 2])


@pytest.mark.parametrize(
    ("gives", "told"),
    [
        ({"a": 1}, "returned int"),
        ({}, "one DataFrame; table.results names"),
    ],
)
def test_results_that_were_not_declared_are_told(
    small: Workshop, gives: dict[str, int], told: str
) -> None:
    small.gives("a", "b")
    small.does(lambda events: gives or events)
    small.publish({"n": 1})
    assert told in small.fails()


def test_an_event_whose_row_breaks_a_condition_is_a_dead_letter_with_the_conditions_name(
    shop: Workshop,
) -> None:
    shop.does(keep, expectations=(POSITIVE, Expectation("named", "name IS NOT NULL")))
    shop.publish({"n": 1, "name": "a"}, {"n": 0, "name": "b"}, {"n": 2}, {"n": None, "name": "c"})
    told = shop.run()
    assert shop.rows() == [{"n": 1, "name": "a"}], "no table gets the envelope"
    assert shop.group.progress().tally == Tally(processed=1, dead_lettered=3)
    assert told["refused: expect.positive: n > 0"] == 2
    assert told["refused: expect.named: name IS NOT NULL"] == 1
    reasons = {letter.event.payload.get("name"): letter.errors for letter in shop.letters()}
    assert {name: errors[-1].message for name, errors in reasons.items()} == {
        "b": "expect.positive: n > 0",
        "c": "expect.positive: n > 0",
        None: "expect.named: name IS NOT NULL",
    }
    assert all(errors[-1].type == "EventRefused" for errors in reasons.values())


def test_an_event_is_refused_with_all_its_rows(small: Workshop) -> None:
    def pieces(events: DataFrame) -> DataFrame:
        return events.select(F.explode(F.split("name", ",")).alias("part"), "n", "_event")

    small.does(pieces, expectations=(Expectation("short", "length(part) < 3"),))
    small.publish({"n": 1, "name": "a,b"}, {"n": 2, "name": "c,much,d"})
    small.run()
    assert sorted(row["part"] for row in small.rows()) == ["a", "b"]
    assert [letter.event.payload["n"] for letter in small.letters()] == [2]


def test_rows_can_be_dropped_and_counted(small: Workshop) -> None:
    small.does(
        lambda events: events.select("n"),
        expectations=(Expectation("positive", "n > 0", "drop"),),
    )
    small.publish({"n": 1}, {"n": -1}, {"n": -2})
    assert small.run()["dropped: positive"] == 2
    assert small.numbers() == [1]
    assert small.group.progress().tally == Tally(processed=3)


def test_a_condition_may_fail_the_batch(small: Workshop) -> None:
    """And the run after that finds the event that breaks it."""
    small.does(keep, expectations=(Expectation("positive", "n > 0", "fail"),))
    small.publish({"n": 1}, {"n": -1}, {"n": 2})
    assert "expect.positive: n > 0 is not fulfilled by 1 rows" in small.fails()
    assert small.rows() == []
    assert small.run()["failed alone"] == 1
    assert small.numbers() == [1, 2]
    assert [letter.event.payload["n"] for letter in small.letters()] == [-1]


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (POSITIVE, "expect.positive sends events to the dead letters, so the rows must say which"),
        (Expectation("odd", "m > 1", "drop"), "expect.odd: m > 1 cannot be asked"),
    ],
)
def test_a_condition_that_cannot_be_asked_is_told(
    small: Workshop, condition: Expectation, told: str
) -> None:
    small.does(lambda events: events.select("n"), expectations=(condition,))
    small.publish({"n": 1})
    assert told in small.fails()


def test_a_pipeline_may_reject_events_with_a_reason_of_its_own(shop: Workshop) -> None:
    def sorted_out(events: DataFrame) -> tuple[DataFrame, DataFrame]:
        bad = F.col("name") == "bad"
        reason = F.concat(F.lit("no rate for "), F.col("name"))
        return events.where(~bad), events.where(bad).withColumn("reason", reason)

    shop.does(sorted_out)
    shop.publish({"n": 1, "name": "good"}, {"n": 2, "name": "bad"})
    assert shop.run()["refused: no rate for bad"] == 1
    assert shop.rows() == [{"n": 1, "name": "good"}]
    (letter,) = shop.letters()
    assert (letter.event.payload["n"], letter.errors[-1].message) == (2, "no rate for bad")


def test_a_rejection_without_a_reason_is_told(small: Workshop) -> None:
    small.does(lambda events: (events, events))
    small.publish({"n": 1})
    assert "needs the columns _event and reason" in small.fails()


def test_a_batch_of_which_every_event_is_refused_is_done(small: Workshop) -> None:
    small.does(keep, expectations=(POSITIVE,))
    small.publish({"n": -1}, {"n": -2})
    assert small.run()["rows"] == 0
    assert small.group.progress().tally == Tally(dead_lettered=2)
    assert small.group.open_deliveries() == []


def test_payloads_that_do_not_fit_arrive_in_a_column_if_asked_for(small: Workshop) -> None:
    small.does(lambda events: events.select("n", "_corrupt"), corrupt="column")
    small.publish({"n": 1}, {"n": "one"})
    small.run()
    assert {row["n"]: row["_corrupt"] for row in small.rows()} == {1: None, None: '{"n":"one"}'}


def test_payloads_that_do_not_fit_become_dead_letters_if_asked_for(shop: Workshop) -> None:
    shop.does(keep, corrupt="dead_letter")
    shop.publish({"n": 1}, {"n": "one"}, [2])
    told = shop.run()
    assert told["refused: the payload does not fit the columns of its topic"] == 2
    assert shop.numbers() == [1]
    assert shop.group.progress().tally == Tally(processed=1, dead_lettered=2)


def test_a_refused_letter_that_is_sent_back_is_judged_again(shop: Workshop) -> None:
    shop.does(keep, expectations=(POSITIVE,))
    shop.publish({"n": 1}, {"n": -7})
    shop.run()
    list(shop.bus.dead_letters("readers").redrive())
    shop.run()
    assert [letter.event.payload["n"] for letter in shop.letters()] == [-7]
    assert shop.numbers() == [1]
    shop.does(keep, expectations=(Expectation("small", "n > -10"),))
    list(shop.bus.dead_letters("readers").redrive())
    shop.run()
    assert (shop.letters(), shop.numbers()) == ([], [-7, 1])
    assert shop.group.progress().tally == Tally(processed=2)


STEPS = [
    (processing, "judge"),
    (DeltaSink, "write"),
    (DeltaSink, "commit"),
    (Group, "settle"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("place", "step"), STEPS, ids=[step for _, step in STEPS])
def test_wherever_a_worker_dies_each_event_ends_once(
    small: Workshop, monkeypatch: pytest.MonkeyPatch, place: object, step: str, after: bool
) -> None:
    """Refused events are dead letters, the others rows, whatever the first worker had done."""
    small.does(keep, expectations=(POSITIVE,))
    small.publish({"n": 1}, {"n": -1}, {"n": 2})
    real = getattr(place, step)

    def dies(*args: object, **kwargs: object) -> None:
        if after:
            real(*args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as fault:
        fault.setattr(place, step, dies)
        with pytest.raises(KeyboardInterrupt):
            small.run()
    if small.group.progress().lag:
        small.run()
    assert small.numbers() == [1, 2]
    assert [letter.event.payload["n"] for letter in small.letters()] == [-1]
    assert small.group.progress().tally == Tally(processed=2, dead_lettered=1)


def test_a_group_that_is_moved_away_in_part_leaves_its_rows_in_the_table_once(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has committed a delivery over two partitions, and died before it could say so."""
    shop.publish(*({"n": n} for n in range(6)))

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as fault:
        fault.setattr(Group, "settle", dies)
        with pytest.raises(KeyboardInterrupt):
            shop.run()
    shop.group.seek("latest", [TopicPartition("orders", 0)], force=True)
    assert shop.group.progress().lag == 3
    assert shop.run()["already in the table"]
    assert shop.numbers() == [0, 1, 2, 3, 4, 5]
    assert shop.group.progress().tally == Tally(processed=3)


def test_an_error_in_the_pipeline_says_where_it_stood_and_what_it_was_doing(
    small: Workshop,
) -> None:
    def helper() -> None:
        raise LookupError("no such rate")

    def pipeline(events: DataFrame) -> DataFrame:
        helper()
        return events

    small.does(pipeline)
    small.publish({"n": 1})
    held = small.take()
    with pytest.raises(Exception, match="LookupError: no such rate") as failed:
        small.run(held)
    said = str(failed.value)
    assert "raised at test_pipelines.py:" in said
    assert ", in helper\n" in said
    assert f"in pipeline tests:pipeline, group readers, delivery {held.id}" in said
    (letter,) = small.letters()
    assert "raised at test_pipelines.py:" in letter.errors[-1].traceback


def in_a_worker(events: DataFrame) -> DataFrame:
    @F.udf("bigint", useArrow=False)
    def rate(n: int) -> int:
        raise LookupError("there is no rate")

    return events.select(rate("n").alias("n"))


def in_java(events: DataFrame) -> DataFrame:
    """A path that no file can have: an error that Spark has no words of its own for."""
    events.select("name").write.text("/proc/no/such/place")
    return events


@pytest.mark.parametrize(
    ("pipeline", "expected", "told"),
    [
        (in_a_worker, (), "LookupError: there is no rate\nin pipeline"),
        (in_java, (), "Mkdirs failed"),
        (query_pipeline("SELEC n FROM events", {}), (), "Syntax error at or near 'SELEC'"),
        (query_pipeline("SELECT 1 div n FROM events", {}), (), "[DIVIDE_BY_ZERO] Division by zero"),
        (lambda events: events.select("m"), (), "`m` cannot be resolved. Did you mean one of"),
        (keep, (Expectation("odd", "m > 1"),), "expect.odd: m > 1 cannot be asked: [UNRESOLVED_"),
        (keep, (Expectation("odd", "n > ("),), "expect.odd: n > ( cannot be asked: [PARSE_SYNTAX"),
    ],
    ids=["python", "java", "syntax", "data", "column", "condition", "condition's syntax"],
)
def test_what_spark_says_is_told_in_short(
    small: Workshop, pipeline: Callable[[DataFrame], Any], expected: Any, told: str
) -> None:
    """The failure that a user sees has no page of Java, and neither has its cause."""
    small.does(pipeline, expectations=expected)
    small.publish({"n": 1}, {"n": 0})
    held = small.take()
    with pytest.raises(Failure) as failed:
        small.run(held)
    said = str(failed.value.description)
    assert told in said
    assert f"in pipeline tests:pipeline, group readers, delivery {held.id}" in said
    shown = said + str(failed.value.__cause__ or "")
    assert not any(word in shown for word in ("\tat ", "stacktrace:", "+- ", "pipeline.py:"))
    assert len(said) < 900
