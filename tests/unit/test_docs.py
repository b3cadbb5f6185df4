"""The documents say what the program does."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dagster_bus.cli.main import commands
from dagster_bus.spec.units import duration_ms, in_words
from tools.reference import TARGET, reference

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def known(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from known(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


COMMANDS = dict(known(commands))


def test_the_reference_is_made_from_the_models() -> None:
    assert TARGET.read_text(encoding="utf-8") == reference(), "run make docs"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert "://" in target or (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_shown_exist(document: Path) -> None:
    for shown in re.findall(r"dagster-bus ((?:(?:dlq|spark|tables) )?[a-z]+)\b", _code(document)):
        assert shown in COMMANDS, shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_has_help(name: str) -> None:
    assert COMMANDS[name].help
    assert any(f"dagster-bus {name}" in _code(document) for document in DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_that_are_shown_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", _code(document))) <= targets


@pytest.mark.parametrize("text", ["1ms", "1500ms", "2s", "90s", "2m", "1h", "30d"])
def test_durations_read_back_as_they_are_written(text: str) -> None:
    assert in_words(duration_ms(text)) == text


def _code(document: Path) -> str:
    """What stands in code, in blocks or in lines."""
    found = re.findall(
        r"```\w*\n(.*?)```|`([^`\n]+)`", document.read_text(encoding="utf-8"), re.DOTALL
    )
    return "\n".join(block or line for block, line in found)
