"""A machine that lacks something is told so in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_machine

PROJECT = Path(__file__).parents[2]


def fake_java(folder: Path, version: str) -> None:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def check(path: Path, *, home: str = "") -> tuple[int, str]:
    found = subprocess.run(
        [sys.executable, "tools/check_machine.py", "--java"],
        cwd=PROJECT,
        env={"PATH": str(path), "JAVA_HOME": home},
        capture_output=True,
        text=True,
        check=False,
    )
    return found.returncode, found.stderr


def test_a_missing_java_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    code, said = check(tmp_path)
    assert code == 1
    assert said.startswith("Java 17 or newer is needed by Spark and was not found: install it (Deb")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("version", "spoken"), [("1.8.0_392", "8"), ("11.0.21", "11")])
def test_an_old_java_is_named(tmp_path: Path, version: str, spoken: str) -> None:
    fake_java(tmp_path, version)
    code, said = check(tmp_path)
    assert code == 1
    assert f"{tmp_path}/java is Java {spoken}: install it" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("version", ["17.0.9", "21", "25-ea"])
def test_a_newer_java_is_fine(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path, version)
    assert check(tmp_path) == (0, "")


def test_java_home_comes_first(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake_java(tmp_path, "17")
    fake_java(tmp_path / "bin", "11")
    code, said = check(tmp_path, home=str(tmp_path))
    assert code == 1
    assert f"{tmp_path}/bin/java is Java 11" in said


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    said = check_machine.main()
    assert said is not None
    assert said.startswith("Python 3.11 or newer is needed")
    assert "is Python 3.9: install a newer one and run make PYTHON=" in said


def test_make_asks_for_java_before_it_installs_anything(tmp_path: Path) -> None:
    """With a PATH that has all but Java, in a copy that has no environment yet."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "make"):
        (tools / name).symlink_to(str(shutil.which(name)))
    (tools / "python3").symlink_to(sys.executable)
    copy = tmp_path / "copy"
    shutil.copytree(PROJECT / "tools", copy / "tools")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, copy / name)
    said = subprocess.run(
        ["make", "demo"],
        cwd=copy,
        env={"PATH": str(tools), "JAVA_HOME": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode != 0
    assert "Java 17 or newer is needed by Spark and was not found" in said.stderr
    assert not (copy / ".venv").exists()


def test_make_help_lists_what_there_is() -> None:
    said = subprocess.run(
        ["make", "help"], cwd=PROJECT, env=dict(os.environ), capture_output=True, text=True
    )
    for target in ("demo", "demo-once", "test", "lint", "bench", "clean", "help"):
        assert f"make {target} " in said.stdout
