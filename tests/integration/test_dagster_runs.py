"""Runs of a group's job, with a real Spark session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetMaterialization,
    DagsterExecutionInterruptedError,
    DagsterInstance,
    DagsterRunStatus,
    materialize,
)
from pyspark.sql import SparkSession

from dagster_bus import Bus, BusResource
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import Chosen
from dagster_bus.core.store import Tally
from dagster_bus.errors import StoreUnusable
from dagster_bus.orchestration.dead_letters import build_dead_letters
from dagster_bus.spark.isolation import MOST_LOOKS
from dagster_bus.spark.tables import Written
from dagster_bus.spark.tables.delta import DeltaSink
from dagster_bus.spec.load import load_spec
from tests.support.dagster_dev import wait_for
from tests.support.dagster_project import DEAD, TABLE, Project, failure_of, without_java
from tests.support.project import write_topics


def test_a_run_brings_its_events_into_the_table_and_settles(
    project: Project, spark: SparkSession
) -> None:
    project.publish(10)
    request = project.request()
    result = project.run(request)
    assert result.success
    assert project.rows() == list(range(10))
    assert project.tally() == Tally(processed=10)
    (event,) = result.asset_materializations_for_node("order_table")
    assert event.partition == request.partition_key
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert (metadata["rows"], metadata["events"], metadata["lag"]) == (10, 10, 0)
    assert metadata["ranges"] == ["orders.created/0:1-5", "orders.created/1:1-5"]
    assert metadata["seconds"] > 0


def test_a_run_that_is_asked_for_twice_works_once(project: Project, spark: SparkSession) -> None:
    project.publish(10)
    request = project.request()
    assert project.run(request).success
    again = project.run(request)
    assert again.success
    assert again.asset_materializations_for_node("order_table") == []
    assert project.rows() == list(range(10))


def test_a_preview_in_the_ui_delays_events_and_loses_none(
    impatient: Project, spark: SparkSession
) -> None:
    """A preview runs the sensor for real, and throws its requests away."""
    impatient.publish(10)
    preview = impatient.request()
    real = impatient.request()
    assert real.run_key != preview.run_key
    assert dict(real.tags)["dagster_bus/attempt"] == "1"
    assert impatient.run(preview).asset_materializations_for_node("order_table") == []
    assert impatient.run(real).success
    assert impatient.rows() == list(range(10))


def store_is_full(*_: object, **__: object) -> None:
    raise StoreUnusable("the disk is full")


def commit_and_lose_the_connection(sink: DeltaSink, written: Written) -> None:
    COMMIT(sink, written)
    raise ConnectionError("the connection was lost")


COMMIT = DeltaSink.commit


@pytest.mark.parametrize(
    ("place", "step", "fault"),
    [
        (Group, "settle", store_is_full),
        (DeltaSink, "commit", commit_and_lose_the_connection),
    ],
)
def test_rows_that_a_run_could_not_settle_are_settled_by_the_next_one(
    tmp_path: Path,
    instance: DagsterInstance,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    place: type,
    step: str,
    fault: Callable[..., None],
) -> None:
    """Even if that was the last attempt: what is in the table must not be dead-lettered too."""
    file = write_topics(tmp_path, **{"max_attempts: 2": "max_attempts: 1"})
    project = Project(file, instance)
    project.publish(10)

    with monkeypatch.context() as broken:
        broken.setattr(place, step, fault)
        first = project.run(project.request())
    assert "The table has the rows, and this run could not say so" in failure_of(first)
    assert project.tally() == Tally()
    second = project.run(project.request())
    assert second.success
    (event,) = second.asset_materializations_for_node("order_table")
    assert event.metadata["already in the table"].value is True
    assert project.tally() == Tally(processed=10)
    assert project.rows() == list(range(10))


def test_a_run_that_is_cancelled_hands_its_work_back_and_counts_as_no_attempt(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_topics(tmp_path, **{"max_attempts: 2": "max_attempts: 1"})
    project = Project(file, instance)
    project.publish(10)

    def cancelled(*_: object) -> None:
        raise DagsterExecutionInterruptedError

    with monkeypatch.context() as fault:
        fault.setattr(DeltaSink, "write", cancelled)
        assert not project.run(project.request()).success
    again = project.request()
    assert dict(again.tags)["dagster_bus/attempt"] == "1"
    assert project.run(again).success
    assert project.tally() == Tally(processed=10)


def test_a_spark_that_does_not_start_costs_no_attempt_and_is_waited_for(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also once no attempt is left, and however often: the good events are done in the end."""
    changes = {
        "max_attempts: 2": "max_attempts: 1",
        "pipelines:keep": "pipelines:all_but_7",
        "on_exhausted: dead_letter": "on_exhausted: isolate",
        "launch_timeout: 60s": "launch_timeout: 1s",
    }
    project = Project(write_topics(tmp_path, **changes), instance)
    project.publish(10)

    def run() -> Any:
        return project.run(wait_for("request", lambda: [*(project.tick().run_requests or ())])[0])

    def run_without_java() -> None:
        with without_java(monkeypatch):
            said = failure_of(run())
        assert said.startswith("Not tried: no Spark session could be opened: RuntimeError: Java")
        assert "the next run follows in 1 s" in said
        assert not project.tick().run_requests, "who has no Spark is not asked again at once"

    run_without_java()
    assert "No attempt is left: the next run finds out" in failure_of(run())
    for _ in range(MOST_LOOKS + 1):
        run_without_java()
    assert project.tally() == Tally()
    assert run().success
    assert project.tally() == Tally(processed=9, dead_lettered=1)
    assert project.rows() == [n for n in range(10) if n != 7]


def test_the_work_of_runs_that_vanished_is_given_up_by_one_that_has_looked(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    project = Project(write_topics(tmp_path), instance)
    project.publish(10)
    for attempt in (1, 2):
        request = project.request()
        tags = dict(request.tags)
        run_id = project.launch(request, DagsterRunStatus.FAILURE)
        with Bus.open(project.file) as bus:
            reservation = int(tags["dagster_bus/reservation"])
            bus.group("order-table").lease(
                tags["dagster_bus/delivery"], reservation=reservation, worker=run_id
            )
        assert tags["dagster_bus/attempt"] == str(attempt)
        if attempt == 1:
            project.tick()  # takes the work back; it waits for a moment
    last = project.run(project.request())
    assert failure_of(last).startswith("No attempt is left: 10 events are in the dead letters")
    assert project.tally() == Tally(dead_lettered=10)


def test_failed_runs_end_in_the_dead_letter_asset(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    file = write_topics(tmp_path, **{"pipelines:keep": "pipelines:explode"})
    project = Project(file, instance)
    project.publish(10)
    first = project.run(project.request())
    assert not first.success
    message = failure_of(first)
    assert message.startswith("Attempt 1 failed; the next one follows in 0.0 s.")
    assert "boom" in message
    second = project.run(project.request())
    assert failure_of(second).startswith(
        "No attempt is left: 10 events are in the dead letters of order-tab"
    )

    assert project.tally() == Tally(dead_lettered=10)
    tick = project.tick(cursor="0")
    (shown,) = tick.asset_events
    assert isinstance(shown, AssetMaterialization)
    assert shown.asset_key == DEAD
    assert shown.metadata["dead letters"].value == 10
    table: Any = shown.metadata["newest"]
    assert len(table.records) == 10
    record = table.records[0].data
    assert "boom" in record["error"]
    assert record["attempts"] == 2
    assert record["run"] == second.run_id
    assert f"/runs/{first.run_id}" in str(shown.metadata["why"].value)
    assert not project.tick(cursor=tick.cursor).asset_events


def test_letters_that_are_sent_back_reach_the_table_by_the_next_run(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    file = write_topics(tmp_path, **{"pipelines:keep": "pipelines:explode"})
    broken = Project(file, instance)
    broken.publish(3)
    for _ in range(2):
        broken.run(broken.request())
    assert broken.tally() == Tally(dead_lettered=3)
    mended = Project(write_topics(tmp_path), instance)
    with Bus.open(file) as bus:
        letters = bus.dead_letters("order-table")
        one = next(letter for letter in letters.list() if letter.event.payload == {"n": 1})
        patch = [{"op": "replace", "path": "/n", "value": 100}]
        list(letters.redrive(Chosen(ids=(one.id,)), patch=patch))
        list(letters.redrive())
    for request in mended.tick().run_requests or []:
        assert mended.run(request).success
    assert mended.rows() == [0, 2, 100]
    assert mended.tally() == Tally(processed=3)
    assert mended.tick(cursor="3").asset_events, "the asset shows that they are gone"


def test_a_sensor_says_that_its_group_has_stopped(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    file = write_topics(
        tmp_path,
        **{
            "pipelines:keep": "pipelines:explode",
            "on_exhausted: dead_letter": "on_exhausted: block",
        },
    )
    project = Project(file, instance)
    project.publish(3)
    for _ in range(2):
        project.run(project.request())
    assert "has stopped" in str(project.tick().skip_reason)
    assert "dagster-bus resume order-table" in str(project.tick().skip_reason)
    with Bus.open(file) as bus:
        assert bus.group("order-table").resume() == 1
    assert project.request()


def test_the_dead_letter_asset_can_be_looked_at_again_by_hand(project: Project) -> None:
    result = materialize(
        build_dead_letters(load_spec(project.file), {"order-table": [TABLE]}),
        instance=project.instance,
        resources={"bus": BusResource(topics_yaml=str(project.file))},
    )
    (event,) = result.asset_materializations_for_node("all_dead_letters")
    assert event.metadata["dead letters"].value == 0
