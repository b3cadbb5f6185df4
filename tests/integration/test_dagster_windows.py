"""What an operator does in Dagster with the windows of a table, and with events of the past."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dagster import DagsterInstance
from pyspark.sql import DataFrame, SparkSession

from dagster_bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.event import Message
from dagster_bus.core.store import Tally
from dagster_bus.core.window import DAILY, HOUR_MS, HOURLY
from tests.support import pipelines
from tests.support.dagster_project import JOB, Project, failure_of, without_java
from tests.support.project import write_topics

NOW = system_clock()
OPEN = HOURLY.at(NOW).key
HOUR_AGO, TWO_AGO = (HOURLY.at(NOW - hours * HOUR_MS).key for hours in (1, 2))


def publish(project: Project, *numbers: int, hours_ago: int = 0) -> None:
    messages = [Message({"n": n}, ts=NOW - hours_ago * HOUR_MS) for n in numbers]
    with Bus.open(project.file) as bus:
        bus.publish_many("orders.created", messages)


def deliver(project: Project) -> None:
    """Let the group do all there is."""
    while requests := project.tick().run_requests:
        for request in requests:
            assert project.run(request).success


def materialize(project: Project, *keys: str) -> Any:
    """A run without a delivery, for one partition or a range of them."""
    ends = {"start": keys[0], "end": keys[-1]} if len(keys) > 1 else {}
    return project.defs.resolve_job_def(JOB).execute_in_process(
        instance=project.instance,
        partition_key=keys[0] if len(keys) == 1 else None,
        tags={f"dagster/asset_partition_range_{end}": key for end, key in ends.items()},
        raise_on_error=False,
    )


def told(result: Any) -> dict[str, dict[str, Any]]:
    """What a run says of each partition."""
    assert result.success
    return {
        event.partition: {name: each.value for name, each in event.metadata.items()}
        for event in result.asset_materializations_for_node("order_table")
    }


def rows(project: Project, table: str = "data/orders") -> dict[str, list[int]]:
    """The numbers in each window, as an independent reader sees them."""
    found = pl.read_delta(str(project.file.parent / table)).select("_window", "n").rows()
    windows = sorted({window for window, _ in found})
    return {each: sorted(n for window, n in found if window == each) for each in windows}


def hundredfold(events: DataFrame) -> DataFrame:
    return events.selectExpr("n * 100 AS n", "_event.id AS event_id")


def test_partitions_that_are_materialized_are_made_anew_and_the_group_goes_on(
    project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project, 1, hours_ago=2)
    publish(project, 2, hours_ago=1)
    publish(project, 3)
    deliver(project)
    with monkeypatch.context() as mended:
        mended.setattr(pipelines, "keep", hundredfold)
        other = Project(project.file, project.instance)
        publish(project, 4)
        one = told(materialize(other, OPEN))
        assert one[OPEN]["rows"] == 1
        assert one[OPEN]["still to come"] == 1, "the window is open, and its events may wait"
        assert rows(project) == {TWO_AGO: [1], HOUR_AGO: [2], OPEN: [300]}
        several = told(materialize(other, TWO_AGO, HOUR_AGO))
        assert {key: each["rows"] for key, each in several.items()} == {TWO_AGO: 1, HOUR_AGO: 1}
    deliver(project)
    assert rows(project) == {TWO_AGO: [100], HOUR_AGO: [200], OPEN: [4, 300]}
    assert project.tally() == Tally(processed=4)

    told_nothing = project.defs.resolve_job_def(JOB).execute_in_process(
        instance=project.instance, raise_on_error=False
    )
    assert "choose their partitions" in failure_of(told_nothing)


def test_a_table_by_the_day_of_a_zone_and_a_group_whose_window_was_changed(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    hourly = Project(write_topics(tmp_path), instance)
    publish(hourly, 1)
    with Bus.open(hourly.file) as bus:
        (waiting,) = bus.group("order-table").reserve()
    assert waiting.window == OPEN
    daily = Project(
        write_topics(tmp_path, **{"launch_timeout: 60s": "launch_timeout: 1ms\n    window: daily"}),
        instance,
    )
    publish(daily, 2)
    day = DAILY.at(NOW).key
    with Bus.open(daily.file) as bus:
        held = bus.group("order-table").reserve()
    assert [each.window for each in held] == [day], "and the other one keeps its window"
    project = Project(daily.file, instance)
    for request in project.tick().run_requests or []:
        assert request.partition_key == day, "Dagster knows no other"
        assert project.run(request).success
    assert rows(project)[day] == [2]


def test_a_replay_goes_through_events_again_into_a_table_beside(
    project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(project, 1, 2, hours_ago=1)
    publish(project, 3)
    deliver(project)

    def replay(**config: Any) -> Any:
        asked = {"group": "order-table", "name": "again", **config}
        return project.defs.resolve_job_def("replay").execute_in_process(
            instance=project.instance,
            run_config={"ops": {"replay_events": {"config": asked}}},
            raise_on_error=False,
        )

    def says(result: Any) -> str:
        error = result.failure_data_for_node("replay_events")
        return str(error.user_failure_data.description)

    assert "'nobody' has a pipeline (there are: order-table)" in says(replay(group="nobody"))
    assert "is no partition of a topic" in says(replay(partitions=["orders.created"]))
    assert "not both" in says(replay(from_offset=1, from_time="2026-01-01T00:00:00Z"))
    assert "is not a point in time" in says(replay(from_time="yesterday"))
    assert "does not read stock/0" in says(replay(partitions=["stock/0"]))

    first = replay(to_time=f"{OPEN}:00:00Z")
    assert first.success
    beside = "data/orders__replay_again"
    assert rows(project, beside) == {HOUR_AGO: [1, 2]}
    assert replay().success, "it is gone on with, and done"
    assert rows(project, beside) == {HOUR_AGO: [1, 2]}
    assert project.tally() == Tally(processed=3)
    assert rows(project) == {HOUR_AGO: [1, 2], OPEN: [3]}

    with without_java(monkeypatch):
        assert "Not tried: no Spark session" in says(replay(name="later"))
    with Bus.open(project.file) as bus:
        assert bus.group("order-table~later").progress().tally == Tally()

    monkeypatch.setattr(pipelines, "keep", pipelines.explode)
    broken = Project(project.file, project.instance)
    result = broken.defs.resolve_job_def("replay").execute_in_process(
        instance=project.instance,
        run_config={
            "ops": {
                "replay_events": {
                    "config": {
                        "group": "order-table",
                        "name": "broken",
                        "partitions": ["orders.created/0"],
                    }
                }
            }
        },
    )
    assert result.success
    with Bus.open(project.file) as bus:
        assert bus.group("order-table~broken").progress().tally.dead_lettered > 0
        assert bus.dead_letters("order-table").list() == []
        assert len(bus.dead_letters("order-table~broken").list()) > 0
