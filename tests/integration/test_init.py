"""`dagster-bus init`: the starter project, and that it is what it says."""

import compileall
import json
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from dagster_bus.cli.init import SAMPLE, init, next_steps
from dagster_bus.cli.validate import validate
from dagster_bus.errors import UsageError
from dagster_bus.schemas import compile_schema
from dagster_bus.spec.json_schema import json_schema
from dagster_bus.spec.load import load_spec
from dagster_bus.spec.source import read_source
from dagster_bus.templates import TEMPLATES, starter

FILES = {*TEMPLATES, "topics.schema.json"}


def call(*words: str) -> Result:
    return CliRunner().invoke(init, words)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert call(str(tmp_path / "shop")).exit_code == 0
    return tmp_path / "shop"


def test_a_new_folder_gets_all_the_files(project: Path) -> None:
    assert files(project) == FILES


def test_this_folder_is_meant_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    said = call()
    assert said.exit_code == 0
    assert files(tmp_path) == {*FILES, "notes.txt"}
    assert "cd " not in said.output


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_is_written_if_one_of_the_files_is_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    said = call(str(tmp_path))
    assert isinstance(said.exception, UsageError)
    assert f"nothing was changed: {name} (" in str(said.exception)
    assert files(tmp_path) == {name}
    assert (tmp_path / name).read_text() == "mine"


def test_a_link_that_leads_nowhere_is_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").symlink_to(tmp_path / "nowhere")
    assert isinstance(call(str(tmp_path)).exception, UsageError)
    assert files(tmp_path) == set()


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("mine")
    said = call(str(tmp_path / "shop"))
    assert isinstance(said.exception, UsageError)
    assert str(said.exception).startswith("cannot write ")


def test_what_was_written_before_a_failure_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "definitions").write_text("a file where a folder should be")
    said = call(str(tmp_path))
    assert isinstance(said.exception, UsageError)
    assert files(tmp_path) == {"definitions"}


def test_the_starter_is_fine_and_gets_no_notes(project: Path) -> None:
    said = CliRunner().invoke(validate, [], obj=str(project / "topics.yaml"))
    assert said.exit_code == 0
    assert "is fine: 1 topic, 1 group" in said.stdout
    assert said.stderr == ""


def test_the_starter_shows_editors_its_schema(project: Path) -> None:
    text = (project / "topics.yaml").read_text("utf-8")
    assert text.startswith("# yaml-language-server: $schema=topics.schema.json\n")
    schema = json.loads((project / "topics.schema.json").read_text("utf-8"))
    assert schema == json_schema()
    assert jsonschema_rs.is_valid(schema, read_source(text, "topics.yaml", {}).data)


def test_what_the_starter_has_as_comments_would_be_fine_too(project: Path) -> None:
    file = project / "topics.yaml"
    text = file.read_text("utf-8")
    for key in ("owners", "dedup", "retention", "filter"):
        assert f"# {key}:" in text
        text = text.replace(f"# {key}:", f"{key}:")
    file.write_text(text, "utf-8")
    assert load_spec(file, {}).spec.topics["payments.received"].retention is not None


def test_the_starters_pipeline_is_where_the_group_looks_for_it(project: Path) -> None:
    group = load_spec(project / "topics.yaml", {}).spec.groups["large-payments"]
    module, _, function = str(group.pipeline).partition(":")
    source = (project / f"{module.replace('.', '/')}.py").read_text("utf-8")
    assert f"def {function}(events: DataFrame) -> DataFrame:" in source
    assert compileall.compile_dir(project / "definitions", quiet=1)


def test_the_sample_event_fits_the_starters_schema(project: Path) -> None:
    loaded = load_spec(project / "topics.yaml", {})
    schema = compile_schema(loaded.schemas["payments.received"])
    assert schema.strict
    assert schema.problem(json.loads(SAMPLE), schema.current) is None


def test_it_says_what_to_do_next_in_commands_that_a_shell_understands(tmp_path: Path) -> None:
    folder = tmp_path / "my shop"
    said = call(str(folder))
    assert [line.strip() for line in said.output.splitlines() if "dagster" in line][-1].endswith(
        "dev"
    )
    steps = [shlex.split(step) for step in next_steps(folder)]
    assert steps[0] == ["cd", str(folder)]
    assert [step[1:2] for step in steps[1:]] == [["validate"], ["publish"], ["groups"], ["dev"]]
    assert json.loads(steps[2][3]) == json.loads(SAMPLE)


def test_the_check_it_proposes_works_in_a_shell(project: Path) -> None:
    change, check, *_ = next_steps(project)
    code = "from dagster_bus.cli.validate import validate; validate(obj='topics.yaml')"
    done = subprocess.run(
        f"{change} && {shlex.quote(sys.executable)} -c {shlex.quote(code)}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.endswith("dagster-bus validate")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("topics.yaml is fine")


def test_the_templates_are_in_the_package() -> None:
    assert all(text.strip() for text in starter().values())
