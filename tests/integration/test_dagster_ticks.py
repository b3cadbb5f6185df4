"""Ticks of a group's sensor, against a real store and a real Dagster instance."""

from dataclasses import replace

import pytest
from dagster import (
    DagsterRunStatus,
)

from dagster_bus import Bus
from dagster_bus.core.recovering import Worker
from dagster_bus.orchestration.runs import RunBook, judge, look_at_runs
from tests.support.dagster_project import TABLE, Project


def test_a_tick_on_nothing_new_asks_for_nothing_and_says_why(project: Project) -> None:
    result = project.tick()
    assert not result.run_requests
    assert result.skip_reason is not None
    assert "Nothing new" in str(result.skip_reason.skip_message)


def test_a_tick_reserves_and_requests_a_run_without_payloads(project: Project) -> None:
    project.publish(10)
    request = project.request()
    tags = dict(request.tags)
    delivery = tags["dagster_bus/delivery"]
    assert request.run_key == f"{delivery}:1:1"
    assert tags["dagster_bus/group"] == "order-table"
    assert tags["dagster_bus/ranges"] == "orders.created/0:1-5 orders.created/1:1-5"
    table = project.defs.resolve_asset_graph().get(TABLE)
    assert table.partitions_def is not None
    assert request.partition_key in table.partitions_def.get_partition_keys()


def test_a_second_tick_asks_for_nothing_more(project: Project) -> None:
    project.publish(10)
    project.request()
    result = project.tick()
    assert not result.run_requests
    assert "10 reserved for runs that are starting" in str(result.skip_reason)


@pytest.mark.parametrize(
    ("status", "age_ms", "expected"),
    [
        (DagsterRunStatus.QUEUED, 10**9, Worker.COMING),
        (DagsterRunStatus.NOT_STARTED, 999, Worker.COMING),
        (DagsterRunStatus.NOT_STARTED, 1_000, Worker.UNKNOWN),
        (DagsterRunStatus.STARTED, 999, Worker.COMING),
        (DagsterRunStatus.STARTED, 1_000, Worker.UNKNOWN),
        (DagsterRunStatus.CANCELING, 1_000, Worker.UNKNOWN),
        (DagsterRunStatus.FAILURE, 0, Worker.GONE),
        (DagsterRunStatus.CANCELED, 0, Worker.GONE),
        (DagsterRunStatus.SUCCESS, 0, Worker.GONE),
    ],
)
def test_a_run_is_waited_for_in_the_queue_and_then_for_a_while(
    status: DagsterRunStatus, age_ms: int, expected: Worker
) -> None:
    assert judge(status, age_ms, patience_ms=1_000) is expected


def test_a_run_that_was_lost_while_it_started_is_asked_for_again(impatient: Project) -> None:
    """Its machine went down before it leased, and Dagster will say "started" for ever."""
    impatient.publish(10)
    first = impatient.request()
    impatient.launch(first, DagsterRunStatus.STARTED)
    assert impatient.request().run_key != first.run_key


def test_a_run_that_is_on_its_way_is_found_by_its_delivery(project: Project) -> None:
    project.publish(10)
    request = project.request()
    project.launch(request, DagsterRunStatus.STARTING)
    with Bus.open(project.file) as bus:
        group = bus.group("order-table")
        delivery = group.delivery(dict(request.tags)["dagster_bus/delivery"])
        look = look_at_runs(RunBook(project.instance, group), patience_ms=600_000)
        assert look(delivery) is Worker.COMING
        assert look(replace(delivery, reservation=2)) is Worker.UNKNOWN


def test_a_run_that_was_cancelled_in_the_queue_is_asked_for_again(impatient: Project) -> None:
    impatient.publish(10)
    first = impatient.request()
    impatient.launch(first, DagsterRunStatus.CANCELED)
    assert impatient.request().run_key != first.run_key


def test_a_run_that_dagster_knows_to_be_dead_is_not_waited_for(project: Project) -> None:
    """Its process leased the delivery, and was killed long before the lease runs out."""
    project.publish(10)
    first = project.request()
    run_id = project.launch(first, DagsterRunStatus.FAILURE)
    delivery = dict(first.tags)["dagster_bus/delivery"]
    with Bus.open(project.file) as bus:
        bus.group("order-table").lease(delivery, reservation=1, worker=run_id)
    project.tick()
    second = project.request()
    assert second.run_key == f"{delivery}:2:2"
