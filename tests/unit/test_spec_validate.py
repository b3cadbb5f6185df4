"""`dagster-bus validate`"""

import json
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result

from dagster_bus.cli.validate import validate
from dagster_bus.errors import SpecError, UsageError
from dagster_bus.spec.json_schema import json_schema
from tests.unit.test_spec import FULL, GOOD


def call(file: Path, text: str, *options: str) -> Result:
    file.write_text(dedent(text), encoding="utf-8")
    return CliRunner().invoke(validate, options, obj=str(file))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.yaml"


def test_a_file_without_mistakes_is_fine(file: Path) -> None:
    said = call(file, GOOD)
    assert said.exit_code == 0
    assert said.stdout == (
        f"{file} is fine: 2 topics, 1 group (pipelines are looked at when Dagster loads them)\n"
    )
    assert said.stderr == ""


def test_what_is_not_acted_on_yet_is_noted_and_no_mistake(file: Path) -> None:
    said = call(file, GOOD.replace("partitions: 4", "acl: {publish: [shop]}"))
    assert said.exit_code == 0
    assert "is fine" in said.stdout
    assert said.stderr == (
        "note: topics.yaml:7:5: topics.orders.created.acl: understood, but this version does not "
        "act on it yet\n"
    )
    assert "is fine" in call(file, FULL).stdout


def test_mistakes_are_raised_with_the_exit_code_of_bad_arguments(file: Path) -> None:
    said = call(file, GOOD.replace("partitions: 4", "partitions: 0"))
    assert isinstance(said.exception, SpecError)
    assert said.exception.exit_code == 4
    assert str(said.exception) == (
        "topics.yaml:7:17: topics.orders.created.partitions: 0 is too small (at least 1)"
    )


def test_mistakes_as_json_are_for_programs(file: Path) -> None:
    text = GOOD.replace("partitions: 4", "partitions: 0").replace("20s", "soon")
    said = call(file, text, "--json")
    assert said.exit_code == 4
    problems = json.loads(said.stdout)
    assert [list(problem) for problem in problems] == [["file", "line", "column", "message"]] * 2
    assert [(problem["line"], problem["column"]) for problem in problems] == [(7, 17), (18, 12)]


def test_no_mistakes_as_json_are_an_empty_list(file: Path) -> None:
    said = call(file, FULL, "--json")
    assert (said.exit_code, json.loads(said.stdout)) == (0, [])
    assert said.stderr.startswith("note: topics.yaml:")


def test_a_file_that_is_missing_is_a_wrong_request(tmp_path: Path) -> None:
    said = CliRunner().invoke(validate, ["--json"], obj=str(tmp_path / "nothing.yaml"))
    assert isinstance(said.exception, UsageError)


def test_the_schema_needs_no_file(tmp_path: Path) -> None:
    said = CliRunner().invoke(validate, ["--schema"], obj=str(tmp_path / "nothing.yaml"))
    assert said.exit_code == 0
    assert json.loads(said.stdout) == json_schema()
