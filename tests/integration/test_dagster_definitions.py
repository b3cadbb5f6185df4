"""What `topics.yaml` becomes in Dagster, and what is said of mistakes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    RunRequest,
)
from dagster_pyspark import PySparkResource

from dagster_bus import BusResource, load_definitions
from dagster_bus.errors import SpecError
from tests.support.dagster_project import DEAD, JOB, SENSOR, TABLE, Project
from tests.support.project import write_topics

REPOSITORY = Path(__file__).parents[2]


def test_the_file_becomes_resources_assets_a_job_and_a_sensor(project: Project) -> None:
    defs = project.defs
    Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    tables = {"order_table", "order_table/dead_letters"}
    assert keys == {"orders/created", "stock", "strict", *tables}
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


def test_a_groups_pool_and_tags_are_those_of_its_runs(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    file = write_topics(
        tmp_path, **{"retry: quick": "retry: quick\n    pool: spark\n    tags: {a: b}"}
    )
    project = Project(file, instance)
    (node,) = project.defs.resolve_job_def(JOB).all_node_defs
    assert node.pools == {"spark"}
    project.publish(1)
    assert project.request().tags["a"] == "b"


def test_dagsters_own_retries_leave_the_runs_of_groups_alone(tmp_path: Path) -> None:
    """The bus decides when to try again."""
    retries = {"run_retries": {"enabled": True, "max_retries": 3}}
    with DagsterInstance.local_temp(str(tmp_path), overrides=retries) as eager:
        project = Project(write_topics(tmp_path), eager)
        project.publish(1)
        request = project.request()
        failed = [
            project.launch(RunRequest(tags=tags), DagsterRunStatus.STARTED)
            for tags in (request.tags, {})
        ]
        for run_id in failed:
            project.end(run_id, DagsterEventType.RUN_FAILURE)
        runs = [eager.get_run_by_id(run_id) for run_id in failed]
        assert [run.tags["dagster/will_retry"] for run in runs if run] == ["false", "true"]


def test_loading_does_not_touch_the_store(project: Project) -> None:
    assert not (project.file.parent / "bus.db").exists()


def test_a_code_location_loads_with_the_store_down_and_the_tick_says_so(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    (tmp_path / "file").write_text("not a folder")
    file = write_topics(tmp_path, **{"sqlite:///bus.db": "sqlite:///file/bus.db"})
    project = Project(file, instance)
    skipped = project.skipped()
    assert re.match(r"the store .*file/bus\.db failed", skipped)
    assert skipped.endswith("no event is lost by this, and the next tick tries again.")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "pipelines:keep",
            "pipelines:kep",
            "topics.yaml:20:15: pipeline tests.support.pipelines:kep: tests.support.pipelines has "
            "no function 'kep'",
        ),
        (
            "tests.support.pipelines:keep",
            "nowhere.to.be:found",
            "topics.yaml:20:15: pipeline nowhere.to.be:found: No module named 'nowhere'",
        ),
        (
            "stock: {}",
            "order-table: {}",
            "topics.yaml:17:3: groups.order-table and topics.order-table would both be called "
            "'order_table' in Dagster; rename one of them",
        ),
        (
            "order-table:",
            "import:",
            "topics.yaml:17:3: 'import' is a word that Dagster keeps for itself; rename",
        ),
        (
            "stock: {}",
            "order-table-job: {}",
            "topics.yaml:17:3: groups.order-table and topics.order-table-job would both be called",
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
