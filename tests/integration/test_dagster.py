"""Definitions, ticks and runs with a real Dagster instance, store and Spark session."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
    SensorResult,
    build_sensor_context,
    materialize,
)
from dagster_pyspark import PySparkResource
from pyspark.sql import SparkSession

from dagster_bus import Bus, BusResource, load_definitions
from dagster_bus.core.groups import Group, Worker
from dagster_bus.core.store import Tally
from dagster_bus.errors import SpecError, StoreUnusable
from dagster_bus.orchestration.dead_letters import build_dead_letters_asset
from dagster_bus.orchestration.runs import judge, look_at_runs
from dagster_bus.stores import open_store
from tests.support.project import write_topics

REPOSITORY = Path(__file__).parents[2]
JOB = "order_table_job"
SENSOR = "order_table_sensor"
TABLE = AssetKey(["order_table"])
DEAD = AssetKey(["order_table", "dead_letters"])


class Project:
    """A loaded `topics.yaml` and a Dagster of its own."""

    def __init__(self, file: Path, instance: DagsterInstance) -> None:
        self.file = file
        self.instance = instance
        self.defs: Definitions = load_definitions(file)

    def publish(self, count: int) -> None:
        with Bus.open(self.file) as bus:
            bus.publish_many("orders.created", [{"n": n} for n in range(count)])

    def tick(self, cursor: str | None = None) -> SensorResult:
        sensor = self.defs.resolve_sensor_def(SENSOR)
        context = build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources={"bus": BusResource(topics_yaml=str(self.file))},
            definitions=self.defs,
        )
        result = sensor(context)
        assert isinstance(result, SensorResult)
        return result

    def request(self) -> RunRequest:
        (request,) = self.tick().run_requests or []
        return request

    def run(self, request: RunRequest) -> Any:
        return self.defs.resolve_job_def(JOB).execute_in_process(
            instance=self.instance,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            raise_on_error=False,
        )

    def launch(self, request: RunRequest, status: DagsterRunStatus) -> str:
        """A run that Dagster knows of and whose process never comes to work."""
        run = self.instance.create_run_for_job(
            self.defs.resolve_job_def(JOB), tags=dict(request.tags), status=status
        )
        return run.run_id

    def tally(self) -> Tally:
        with Bus.open(self.file) as bus:
            return bus.group("order-table").progress().tally

    def rows(self) -> list[int]:
        return sorted(pl.read_delta(str(self.file.parent / "data/orders"))["n"].to_list())


def failure_of(result: Any) -> str:
    """What a failed run says of itself."""
    return str(result.failure_data_for_node("order_table").user_failure_data.description)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path, instance: DagsterInstance) -> Project:
    return Project(write_topics(tmp_path), instance)


def test_the_file_becomes_resources_assets_a_job_and_a_sensor(project: Project) -> None:
    defs = project.defs
    Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert keys == {"orders/created", "stock", "order_table", "order_table/dead_letters"}
    topic = graph.get(AssetKey(["orders", "created"]))
    assert topic.is_external
    assert topic.description == "Orders."
    assert topic.owners == ["team:shop"]
    assert [c.name for c in topic.metadata["dagster/column_schema"].columns] == ["n"]
    table = graph.get(TABLE)
    assert table.parent_keys == {AssetKey(["orders", "created"])}
    assert table.partitions_def is not None
    assert graph.get(DEAD).parent_keys == {TABLE}
    assert defs.resolve_sensor_def(SENSOR).default_status is DefaultSensorStatus.RUNNING
    assert defs.resolve_job_def(JOB).executor_def.name == "in_process"
    assert isinstance(defs.resources["bus"], BusResource)  # type: ignore[index]
    assert isinstance(defs.resources["pyspark"], PySparkResource)  # type: ignore[index]


def test_loading_does_not_touch_the_store(project: Project) -> None:
    assert not (project.file.parent / "bus.db").exists()


def test_a_code_location_loads_with_the_store_down_and_the_tick_says_so(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    (tmp_path / "file").write_text("not a folder")
    file = write_topics(tmp_path, **{"sqlite:///bus.db": "sqlite:///file/bus.db"})
    project = Project(file, instance)
    with pytest.raises(StoreUnusable, match=r"the store .*file/bus\.db failed"):
        project.tick()


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
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    """A preview runs the sensor for real, and throws its requests away."""
    file = write_topics(tmp_path, **{"launch_timeout: 60s": "launch_timeout: 1ms"})
    project = Project(file, instance)
    project.publish(10)
    preview = project.request()
    real = project.request()
    assert real.run_key != preview.run_key
    assert dict(real.tags)["dagster_bus/attempt"] == "1"
    assert project.run(preview).asset_materializations_for_node("order_table") == []
    assert project.run(real).success
    assert project.rows() == list(range(10))


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


def test_a_run_that_was_lost_while_it_started_is_asked_for_again(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    """Its machine went down before it leased, and Dagster will say "started" for ever."""
    file = write_topics(tmp_path, **{"launch_timeout: 60s": "launch_timeout: 1ms"})
    project = Project(file, instance)
    project.publish(10)
    first = project.request()
    project.launch(first, DagsterRunStatus.STARTED)
    assert project.request().run_key != first.run_key


def test_a_run_that_is_on_its_way_is_found_by_its_delivery(project: Project) -> None:
    project.publish(10)
    request = project.request()
    project.launch(request, DagsterRunStatus.STARTING)
    with open_store(f"sqlite:///{project.file.parent}/bus.db") as store:
        delivery = store.delivery(dict(request.tags)["dagster_bus/delivery"])
    look = look_at_runs(project.instance, patience_ms=600_000)
    assert look(delivery) is Worker.COMING
    assert look(replace(delivery, reservation=2)) is Worker.UNKNOWN


def test_a_run_that_was_cancelled_in_the_queue_is_asked_for_again(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    file = write_topics(tmp_path, **{"launch_timeout: 60s": "launch_timeout: 1ms"})
    project = Project(file, instance)
    project.publish(10)
    first = project.request()
    project.launch(first, DagsterRunStatus.CANCELED)
    assert project.request().run_key != first.run_key


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


def test_rows_that_a_run_could_not_settle_are_settled_by_the_next_one(
    tmp_path: Path,
    instance: DagsterInstance,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if that was the last attempt: what is in the table must not be dead-lettered too."""
    file = write_topics(tmp_path, **{"max_attempts: 2": "max_attempts: 1"})
    project = Project(file, instance)
    project.publish(10)

    def store_is_full(*_: object, **__: object) -> None:
        raise StoreUnusable("the disk is full")

    with monkeypatch.context() as fault:
        fault.setattr(Group, "settle", store_is_full)
        first = project.run(project.request())
    assert "The table has the rows, and this run could not say so" in failure_of(first)
    assert project.tally() == Tally()
    second = project.run(project.request())
    assert second.success
    (event,) = second.asset_materializations_for_node("order_table")
    assert event.metadata["already in the table"].value is True
    assert project.tally() == Tally(processed=10)
    assert project.rows() == list(range(10))


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


def test_the_dead_letter_asset_can_be_looked_at_again_by_hand(project: Project) -> None:
    result = materialize(
        [build_dead_letters_asset("order-table")],
        instance=project.instance,
        resources={"bus": BusResource(topics_yaml=str(project.file))},
    )
    (event,) = result.asset_materializations_for_node("order_table__dead_letters")
    assert event.metadata["dead letters"].value == 0


def test_a_table_that_is_materialized_by_hand_explains_itself(
    project: Project, spark: SparkSession
) -> None:
    project.publish(10)
    result = project.defs.resolve_job_def(JOB).execute_in_process(
        instance=project.instance, partition_key="2026-11-18T01", raise_on_error=False
    )
    assert "filled by its sensor" in failure_of(result)
    assert project.tally() == Tally()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "pipelines:keep",
            "pipelines:kep",
            "topics.yaml:19: pipeline tests.support.pipelines:kep: tests.support.pipelines has no "
            "function 'kep'",
        ),
        (
            "tests.support.pipelines:keep",
            "nowhere.to.be:found",
            "topics.yaml:19: pipeline nowhere.to.be:found: No module named 'nowhere'",
        ),
        (
            "stock: {}",
            "order-table: {}",
            "topics.yaml:16: groups.order-table and topics.order-table would both be called "
            "'order_table' in Dagster; rename one of them",
        ),
        (
            "order-table:",
            "import:",
            "topics.yaml:16: 'import' is a word that Dagster keeps for itself; rename",
        ),
        (
            "stock: {}",
            "order-table-job: {}",
            "topics.yaml:16: groups.order-table and topics.order-table-job would both be called",
        ),
    ],
)
def test_mistakes_that_only_loading_can_find_have_their_line(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    with pytest.raises(SpecError) as found:
        load_definitions(write_topics(tmp_path, **{old: new}))
    assert any(line.startswith(complaint) for line in str(found.value).splitlines())


def test_the_repositorys_own_workspace_loads() -> None:
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
