"""A batch that fails for good: what fails alone is found, and the rest reaches the table."""

import os
import signal
from collections.abc import Iterator
from math import log2
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_bus.core.store import Tally
from dagster_bus.spark.expecting import Expectation
from dagster_bus.spark.isolation import MOST_LOOKS
from dagster_bus.spark.tables.delta import DeltaSink
from tests.support.spark_work import Workshop


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


def raising(*bad: int) -> object:
    """A pipeline that some numbers are too much for."""

    def pipeline(events: DataFrame) -> DataFrame:
        text = F.concat(F.lit("cannot do "), F.col("n").cast("string"))
        failing = F.raise_error(text).cast("bigint")
        return events.select(
            F.when(F.col("n").isin(*bad), failing).otherwise(F.col("n")).alias("n")
        )

    return pipeline


def test_three_bad_events_among_very_many_are_found_and_the_others_are_rows(
    shop: Workshop, store_url: str
) -> None:
    count = 100_000 if store_url.startswith("sqlite") else 5_000
    bad = (0, count // 3, count - 1)
    shop.does(raising(*bad))  # type: ignore[arg-type]
    shop.bus.publish_many("orders", ({"n": n} for n in range(count)))
    assert "the next run finds out which events fail alone" in shop.fails()
    told = shop.run()
    assert shop.group.progress().tally == Tally(processed=count - 3, dead_lettered=3)
    assert shop.numbers() == [n for n in range(count) if n not in bad]
    assert {letter.event.payload["n"] for letter in shop.letters()} == {*bad}
    for letter in shop.letters():
        assert f"cannot do {letter.event.payload['n']}" in letter.errors[-1].message
        assert len(letter.errors) == 2, "the batch's failure, and its own"
    assert told["failed alone"] == 3
    assert told["trials"] <= 2 * 3 * log2(count) + 1


def test_results_over_many_rows_are_those_of_all_good_events_together(shop: Workshop) -> None:
    strict = raising(5)

    def total(events: DataFrame) -> DataFrame:
        return strict(events).agg(F.sum("n").alias("n"))  # type: ignore[operator, no-any-return]

    shop.does(total)
    shop.publish(*({"n": n} for n in range(20)))
    shop.fails()
    shop.run()
    assert shop.numbers() == [sum(range(20)) - 5]


@pytest.mark.parametrize("step", ["write", "commit"])
def test_a_worker_that_dies_after_the_bad_events_were_reported_leaves_the_rest_to_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    shop = Workshop(spark, f"sqlite:///{tmp_path}/bus.db", tmp_path)
    shop.does(raising(2))  # type: ignore[arg-type]
    shop.publish(*({"n": n} for n in range(6)))
    shop.fails()
    real = getattr(DeltaSink, step)

    def dies(*args: object) -> None:
        real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as fault:
        fault.setattr(DeltaSink, step, dies)
        with pytest.raises(KeyboardInterrupt):
            shop.run()
    shop.run()
    assert shop.numbers() == [0, 1, 3, 4, 5]
    assert shop.group.progress().tally == Tally(processed=5, dead_lettered=1)
    shop.bus.close()


def test_a_table_that_is_out_of_reach_for_a_while_costs_no_good_event(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop(spark, f"sqlite:///{tmp_path}/bus.db", tmp_path)
    shop.does(raising(2))  # type: ignore[arg-type]
    shop.publish(*({"n": n} for n in range(4)))
    shop.fails()
    with monkeypatch.context() as fault:
        fault.setattr(DeltaSink, "write", unreachable)
        assert "the next run tries again. ConnectionError: no route" in shop.fails()
    shop.run()
    assert shop.numbers() == [0, 1, 3]
    assert shop.group.progress().tally == Tally(processed=3, dead_lettered=1)
    shop.bus.close()


def test_a_table_that_stays_out_of_reach_is_not_tried_for_ever(
    small: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.does(raising(2))  # type: ignore[arg-type]
    small.publish(*({"n": n} for n in range(4)))
    small.fails()
    monkeypatch.setattr(DeltaSink, "write", unreachable)
    for _ in range(MOST_LOOKS):
        assert "the next run tries again" in small.fails()
    assert "No attempt is left: 3 events are in the dead letters" in small.fails()
    assert small.group.progress().tally == Tally(dead_lettered=4)


def unreachable(*_: object) -> None:
    raise ConnectionError("no route to the table")


def test_a_pipeline_that_fails_without_any_event_costs_one_trial(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Workshop(spark, f"sqlite:///{tmp_path}/bus.db", tmp_path)
    shop.does(lambda events: events.select("no_such_column"))
    shop.publish(*({"n": n} for n in range(10)))
    shop.fails()
    assert shop.run()["trials"] == 1
    assert shop.group.progress().tally == Tally(dead_lettered=10)
    assert "no_such_column" in shop.letters()[0].errors[-1].message
    shop.bus.close()


def keep(events: DataFrame) -> DataFrame:
    return events.select("n", "_event")


def test_an_event_that_fails_in_a_condition_or_in_its_rejection_is_found_too(
    small: Workshop,
) -> None:
    """And payloads that do not fit die of that: no pipeline sees them, nor the column for them."""

    def strict(events: DataFrame) -> tuple[DataFrame, DataFrame]:
        assert "_corrupt" not in events.columns
        failing = F.raise_error(F.lit("no reason"))
        reasons = F.when(F.col("n") == 5, failing).otherwise("six")
        return keep(events), events.where("n in (5, 6) or n is null").withColumn("reason", reasons)

    small.does(strict, corrupt="dead_letter", expectations=(Expectation("share", "10 div n > 1"),))
    small.publish(*({"n": n} for n in (0, "one", 2, 3, 5, 6, 7)))
    small.fails()
    assert small.run()["failed alone"] == 2
    assert small.numbers() == [2, 3]
    told = {letter.event.payload["n"]: letter.errors[-1].message for letter in small.letters()}
    assert "DIVIDE_BY_ZERO" in told.pop(0)
    assert "no reason" in told.pop(5)
    assert told == {
        "one": "the payload does not fit the columns of its topic",
        6: "six",
        7: "expect.share: 10 div n > 1",
    }


def test_a_condition_that_can_never_be_asked_costs_one_trial(small: Workshop) -> None:
    small.does(keep, expectations=(Expectation("odd", "m > 1"),))
    small.publish(*({"n": n} for n in range(10)))
    small.fails()
    assert small.run()["trials"] == 1
    assert small.group.progress().tally == Tally(dead_lettered=10)


def killing(mark: Path, deaths: int) -> object:
    """A pipeline whose Python worker is killed over event 3, so many times."""
    path = str(mark)

    @F.udf("bigint", useArrow=False)
    def fragile(n: int) -> int:
        died = Path(path).stat().st_size if Path(path).exists() else 0
        if n == 3 and died < deaths:
            with Path(path).open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    return lambda events: events.select(fragile("n").alias("n"))


def test_executors_that_die_are_no_events_fault_unless_they_always_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Workshop(spark, f"sqlite:///{tmp_path}/bus.db", tmp_path)
    shop.does(killing(tmp_path / "deaths", 2))  # type: ignore[arg-type]
    shop.publish(*({"n": n} for n in range(6)))
    assert "No attempt is left" in shop.fails()
    told = shop.run()
    assert told["failed alone"] == 0
    assert shop.numbers() == [0, 1, 2, 3, 4, 5]
    shop.does(killing(tmp_path / "more", 1_000))  # type: ignore[arg-type]
    shop.publish({"n": 7}, {"n": 3})
    shop.fails()
    assert shop.run()["failed alone"] == 1
    assert [letter.event.payload["n"] for letter in shop.letters()] == [3]
    shop.bus.close()
