"""The README's first topic, done word for word in an empty folder."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from dagster_bus.orchestration.dev import free_port
from tests.support.dagster_dev import wait_for

README = Path(__file__).parents[2] / "README.md"
BIN = Path(sys.executable).parent


def blocks() -> Iterator[tuple[str, str, str]]:
    """The code of the section: language, text, and the file that the words before it name."""
    text = README.read_text(encoding="utf-8")
    section = text.split("## Your first topic in five minutes")[1].split("\n## ")[0]
    for before, language, code in re.findall(r"(.*?)```(\w+)\n(.*?)```", section, re.DOTALL):
        files = re.findall(r"`([\w/]+\.(?:yaml|py))`", before)
        yield language, code, files[-1] if files else ""


@pytest.mark.timeout(600)
def test_the_first_topic_works_as_the_readme_says(tmp_path: Path) -> None:
    found = list(blocks())
    commands = [
        line
        for kind, code, _ in found
        if kind == "sh"
        for line in re.split(r"\n(?=\.venv|mkdir)", code.strip())
    ]
    files = {file: code for kind, code, file in found if kind != "sh" and file}
    assert set(files) == {"topics.yaml", "shop/pipelines.py", "shop/__init__.py", "workspace.yaml"}
    (dagster,) = [command for command in commands if command == ".venv/bin/dagster dev"]
    (look,) = [command for command in commands if command.startswith(".venv/bin/python -c")]
    (tmp_path / "shop").mkdir()
    for file, code in files.items():
        (tmp_path / file).write_text(code, encoding="utf-8")
    for command in commands:
        if command.startswith(".venv/bin/dagster-bus"):
            _call(command, tmp_path)
    _call(".venv/bin/dagster definitions validate -w workspace.yaml", tmp_path)
    publish = next(code for kind, code, file in reversed(found) if kind == "python" and not file)
    subprocess.run([sys.executable, "-c", publish], cwd=tmp_path, check=True)
    table = tmp_path / "data" / "large_payments"
    with _running(dagster, tmp_path):
        wait_for("table", lambda: (table / "_delta_log").exists(), seconds=120)
        wait_for("rows", lambda: pl.read_delta(str(table)).height == 2, seconds=60)
    _call(look, tmp_path)
    assert sorted(pl.read_delta(str(table))["payment_id"]) == ["P-1", "P-3"]


def _call(command: str, folder: Path) -> None:
    words = shlex.split(command.replace(".venv/bin/", f"{BIN}/"))
    said = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr


@contextmanager
def _running(command: str, folder: Path) -> Iterator[None]:
    """A command in the background, ended with all that it started."""
    words = shlex.split(command.replace(".venv/bin/", f"{BIN}/"))
    with (folder / "dagster.log").open("w") as log:
        process = subprocess.Popen(
            [*words, "-p", str(free_port())],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
