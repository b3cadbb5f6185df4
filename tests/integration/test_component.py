"""The component, in a `dg` project as people make them, by the command `dg` itself."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import pytest
from dagster import (
    ComponentTree,
    Definitions,
    ExecutorDefinition,
    ScaffoldRequest,
    build_defs_for_component,
    multiprocess_executor,
)
from dagster.components.core.defs_module import ComponentPath
from dagster.components.core.package_entry import get_package_objects_in_module

from dagster_bus import BusComponent, load_definitions
from dagster_bus.errors import SpecError, UsageError
from dagster_bus.orchestration.component import BusScaffolder
from dagster_bus.spec.load import load_spec
from tests.support.project import write_topics

DG = Path(sys.executable).parent / "dg"
COMPONENT = "src/my_shop/defs/shop_bus"

PROJECT = {
    "pyproject.toml": """
        [project]
        name = "my-shop"
        version = "0.1.0"

        [tool.dg]
        directory_type = "project"

        [tool.dg.project]
        root_module = "my_shop"
    """,
    "src/my_shop/__init__.py": "",
    "src/my_shop/defs/__init__.py": "",
    "src/my_shop/definitions.py": """
        from pathlib import Path

        from dagster import definitions, load_from_defs_folder


        @definitions
        def defs():
            return load_from_defs_folder(path_within_project=Path(__file__).parent)
    """,
    "home/dagster.yaml": "telemetry: {enabled: false}",
}

POST_PROCESSING = """
post_processing:
  assets:
    - target: kind:topic
      attributes:
        tags: {team: shop}
"""


def dg(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    home = str(project / "home")
    return subprocess.run(
        [DG, *words],
        cwd=project,
        env={
            **os.environ,
            "DAGSTER_HOME": home,
            "HOME": home,
            "PYTHONPATH": str(project / "src"),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def scaffolded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("dg") / "shop"
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(dedent(text), encoding="utf-8")
    done = dg(project, "scaffold", "defs", "dagster_bus.BusComponent", "shop_bus")
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def project(scaffolded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scaffolded, tmp_path / "shop"))


def change(file: Path, **replacements: str) -> None:
    text = file.read_text("utf-8")
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, "utf-8")


def test_dg_scaffolds_a_folder_whose_definitions_it_lists(project: Path) -> None:
    folder = project / COMPONENT
    written = {"defs.yaml", "topics.yaml", "topics.schema.json", "pipelines.py", ".gitignore"}
    assert {file.name for file in folder.iterdir()} == written
    defs = folder / "defs.yaml"
    assert defs.read_text("utf-8").split() == [
        *("type:", "dagster_bus.BusComponent"),
        *("attributes:", "topics_yaml:", "topics.yaml"),
    ]
    group = load_spec(folder / "topics.yaml", {}).spec.groups["large-payments"]
    assert group.pipeline == "my_shop.defs.shop_bus.pipelines:large_payments"

    defs.write_text(f"{defs.read_text('utf-8')}{POST_PROCESSING}", "utf-8")
    done = dg(project, "list", "defs", "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assets = {asset["asset_key"]: asset for asset in listed["assets"]}
    assert set(assets) == {"payments/received", "large_payments", "large_payments/dead_letters"}
    assert assets["large_payments"]["dependency_keys"] == ["payments/received"]
    assert assets["payments/received"]["tags"] == [{"key": "team", "value": "shop"}]
    assert {"large_payments_job", "replay"} <= {job["name"] for job in listed["jobs"]}
    sensors = {sensor["name"] for sensor in listed["sensors"]}
    assert sensors == {"large_payments_sensor", "observe_bus"}
    assert {resource["name"] for resource in listed["resources"]} == {"bus", "pyspark"}


def test_dg_checks_the_attributes_before_it_loads_anything(project: Path) -> None:
    change(project / COMPONENT / "defs.yaml", topics_yaml="topic_yaml")
    done = dg(project, "check", "yaml")
    assert done.returncode == 1
    assert f"{COMPONENT}/defs.yaml:4 - dagster_bus.BusComponent" in done.stdout
    assert "('topic_yaml' was unexpected)" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_dg_tells_the_place_of_every_mistake_in_the_file(project: Path) -> None:
    mistakes = {"partitions: 2": "partition: 2", "retry: standard": "retry: standart"}
    change(project / COMPONENT / "topics.yaml", **mistakes)
    with pytest.raises(SpecError) as caught:
        load_spec(project / COMPONENT / "topics.yaml", {})
    assert len(caught.value.problems) == len(mistakes)
    done = dg(project, "check", "defs")
    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert str(caught.value) in told
    assert "defs.yaml (BusComponent) (error)" in told
    assert "Traceback" not in told


def test_dg_finds_the_component_without_being_told_of_it() -> None:
    (entry,) = entry_points(group="dagster_dg_cli.registry_modules", name="dagster_bus")
    found = get_package_objects_in_module(entry.load())
    assert [name for name, _ in found] == ["BusComponent"]


@pytest.mark.parametrize("place", ["shop_bus", "shop_bus/component.py"])
def test_the_path_counts_from_the_folder_also_of_a_component_in_python(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "shop_bus").mkdir()
    (tmp_path / "shop_bus/component.py").touch()
    write_topics(tmp_path / "config")
    loc = ComponentPath.from_path(tmp_path / place)
    context = ComponentTree.for_test().load_context.for_component_loc(loc)
    defs = BusComponent(topics_yaml="../config/topics.yaml").build_defs(context)
    assert defs.resolve_sensor_def("order_table_sensor")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"^topics_yaml: there is no file /\S*/topics\.yml \("):
        build_defs_for_component(BusComponent(topics_yaml="topics.yml"))


def test_resources_and_the_executor_are_replaced_in_a_subclass(tmp_path: Path) -> None:
    class OwnBus(BusComponent):
        def definitions(self, topics_yaml: Path) -> Definitions:
            own: ExecutorDefinition = multiprocess_executor
            return load_definitions(topics_yaml, resources={"pyspark": "mine"}, executor=own)

    file = write_topics(tmp_path)
    plain, own = (
        build_defs_for_component(kind(topics_yaml=str(file))) for kind in (BusComponent, OwnBus)
    )
    assert own.resolve_job_def("order_table_job").executor_def is multiprocess_executor
    assert own.resources is not None
    assert own.resources["pyspark"] == "mine"
    assert plain.resolve_job_def("order_table_job").executor_def.name == "in_process"


@pytest.mark.parametrize("name", ["shop-bus", "2_shop", "büs"])
def test_a_folder_that_python_cannot_import_from_gets_no_files(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "my_shop" / name
    folder.mkdir(parents=True)
    request = ScaffoldRequest(
        type_name="dagster_bus.BusComponent",
        target_path=folder,
        scaffold_format="yaml",
        project_root=tmp_path,
        params=BusScaffolder.get_scaffold_params()(),
    )
    with pytest.raises(SystemExit, match=f"^Error: Python cannot import .* called '{name}'"):
        BusScaffolder().scaffold(request)
    assert list(folder.iterdir()) == []
