"""Ticks of a group's sensor, against a real store and a real Dagster instance."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRunStatus

from dagster_bus import Bus, Message
from dagster_bus.core.event import Priority
from dagster_bus.core.ranges import Place, covering
from dagster_bus.core.recovering import Worker
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.errors import EventRefused, StoreUnavailable
from dagster_bus.orchestration import sensors, turns, waiting
from dagster_bus.orchestration.names import OBSERVE
from dagster_bus.orchestration.rounds import MOST_RUNS, Round, look_after
from dagster_bus.orchestration.runs import RunBook, judge, look_at_runs
from dagster_bus.orchestration.sensors import SHARED
from dagster_bus.orchestration.served import Served
from dagster_bus.orchestration.waiting import IDLE_S, PLACES, first_news, places_to_wait
from dagster_bus.spec import kept
from dagster_bus.spec.load import LoadedSpec, load_spec
from tests.support.dagster_dev import wait_for
from tests.support.dagster_project import TABLE, Project
from tests.support.project import write_topics


def test_a_tick_on_nothing_new_asks_for_nothing_and_says_why(project: Project) -> None:
    result = project.tick()
    assert not result.run_requests
    assert result.skip_reason is not None
    assert "Nothing new" in str(result.skip_reason.skip_message)


def test_ticks_do_not_read_the_file_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SETTLED_NS", 0)  # though the file was written a moment ago
    project.tick()
    reads = []

    def read(*args: Any) -> LoadedSpec:
        reads.append(args)
        return load_spec(*args)

    monkeypatch.setattr(kept, "load_spec", read)
    for _ in range(3):
        project.tick()
    assert reads == []
    project.file.touch()
    project.tick()
    assert len(reads) == 1


def test_a_look_that_takes_long_is_not_repeated_all_the_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_S", 0.01)
    monkeypatch.setattr(waiting, "places_to_wait", lambda _: 1)
    looks = []

    def look() -> None:
        looks.append(monotonic())
        Event().wait(0.1)

    with Bus.open(project.file) as bus:
        listen = bus.group("order-table").listen
        first_news(project.context(), listen, look, lambda _: 0.6)
    assert len(looks) <= 3, "at first, and when its patience ends"


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


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        (["low", "high", "normal"], "1"),
        (["low", "critical"], "2"),
        (["low"], "-1"),
        (["low", "normal"], None),
    ],
)
def test_the_most_urgent_event_of_a_batch_gives_its_run_its_place_in_the_queue(
    project: Project, priorities: list[Priority], expected: str | None
) -> None:
    with Bus.open(project.file) as bus:
        bus.publish_many(
            "orders.created", [Message({"n": 1}, priority=each) for each in priorities]
        )
    assert project.request().tags.get("dagster/priority") == expected


@pytest.fixture
def threaded(tmp_path: Path) -> Iterator[Project]:
    """A project on a Dagster that has a thread for each sensor."""
    settings = {"sensors": {"use_threads": True}}
    with DagsterInstance.local_temp(str(tmp_path), overrides=settings) as opened:
        yield Project(write_topics(tmp_path), opened)


def test_a_tick_that_finds_nothing_waits_for_events(threaded: Project) -> None:
    began = monotonic()
    with ThreadPoolExecutor(1) as pool:
        tick = pool.submit(threaded.tick, by_daemon=True)
        wait_for("tick that waits", lambda: PLACES.taken)
        threaded.publish(1)
        assert tick.result().run_requests
    assert monotonic() - began < IDLE_S
    assert not PLACES.taken


def test_a_tick_waits_a_bounded_time(threaded: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "IDLE_S", 0.3)
    began = monotonic()
    assert "Nothing new" in str(threaded.tick(by_daemon=True).skip_reason)
    assert monotonic() - began > 0.3


def test_nobody_waits_in_a_preview_or_for_the_last_threads(threaded: Project) -> None:
    most = places_to_wait(threaded.context(by_daemon=True))
    assert most > 0
    with ExitStack() as others:
        for _ in range(most):
            others.enter_context(PLACES.one_of(most))
        assert_at_once(lambda: threaded.tick(by_daemon=True))
    assert_at_once(threaded.tick)


def test_nobody_waits_on_the_only_thread(project: Project) -> None:
    assert_at_once(lambda: project.tick(by_daemon=True))


def assert_at_once(tick: Callable[[], object]) -> None:
    began = monotonic()
    tick()
    assert monotonic() - began < IDLE_S / 2


def test_a_tick_asks_for_a_bounded_number_of_runs(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    plenty = "retry: quick\n    batch: {max_events: 1, max_inflight: 1000}"
    project = Project(write_topics(tmp_path, **{"retry: quick": plenty}), instance)
    project.publish(MOST_RUNS + 5)
    assert len(project.tick().run_requests or []) == MOST_RUNS
    assert len(project.tick().run_requests or []) == 5


@pytest.fixture
def shared(tmp_path: Path, instance: DagsterInstance) -> Project:
    """Three groups with one sensor."""
    file = write_topics(tmp_path, **{"spark:\n": "dagster: {sensors: shared}\nspark:\n"})
    text = file.read_text()
    group = text[text.index("  order-table:") :]
    for name in ("second", "third"):
        text += group.replace("order-table", name).replace("data/orders", f"data/{name}")
    file.write_text(text)
    return Project(file, instance)


def test_one_sensor_serves_many_groups(shared: Project) -> None:
    names = [each.name for each in shared.defs.get_repository_def().sensor_defs]
    assert names == [SHARED, OBSERVE]
    assert "Nothing new in 3 groups" in str(shared.tick(sensor=SHARED).skip_reason)
    shared.publish(4)
    tick = shared.tick(sensor=SHARED)
    jobs = [request.job_name for request in tick.run_requests or []]
    assert jobs == ["order_table_job", "second_job", "third_job"]
    idle = str(shared.tick(sensor=SHARED, cursor=tick.cursor).skip_reason)
    assert "12 events to go in 3 groups" in idle


@pytest.mark.parametrize(("bound", "least"), [("MOST_RUNS", 1), ("BUDGET_S", 0)])
def test_a_tick_for_many_groups_is_bounded_and_the_next_one_goes_on(
    shared: Project, monkeypatch: pytest.MonkeyPatch, bound: str, least: int
) -> None:
    shared.publish(4)
    monkeypatch.setattr(turns, bound, least)
    cursor, jobs = None, []
    for _ in range(3):
        tick = shared.tick(sensor=SHARED, cursor=cursor)
        cursor = tick.cursor
        jobs += [[request.job_name for request in tick.run_requests or []]]
    assert jobs == [["order_table_job"], ["second_job"], ["third_job"]]


def test_one_groups_trouble_is_not_that_of_the_others(
    shared: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.publish(4)

    def broken(context: Any, bus: Bus, served: Served, most: int) -> Round:
        if served.group == "second":
            raise StoreUnavailable("it does not answer")
        return look_after(context, bus, served, most)

    monkeypatch.setattr(turns, "look_after", broken)
    tick = shared.tick(sensor=SHARED)
    assert len(tick.run_requests or []) == 2
    idle = shared.tick(sensor=SHARED, cursor=tick.cursor).skip_reason
    assert "1 groups in trouble: second: it does not answer" in str(idle)


def test_a_shared_sensor_shows_the_dead_letters_of_each_group(shared: Project) -> None:
    shared.publish(1)
    cursor = shared.tick(sensor=SHARED).cursor
    with Bus.open(shared.file) as bus:
        for name in ("order-table", "third"):
            group = bus.group(name)
            (reserved,) = group.open_deliveries()
            held = group.lease(reserved.id, reservation=1, worker="test")
            event = next(group.events(held))
            at = covering([Place(event.topic, event.partition, event.offset)])
            group.report(held, Report(refused=(Failed(at, EventRefused("no")),)))
    tick = shared.tick(sensor=SHARED, cursor=cursor)
    shown = [each.asset_key.to_user_string() for each in tick.asset_events]
    assert shown == ["order_table/dead_letters", "third/dead_letters"]
    assert not shared.tick(sensor=SHARED, cursor=tick.cursor).asset_events
