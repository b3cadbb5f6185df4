"""`dagster-bus init`"""

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from dagster_bus.errors import UsageError
from dagster_bus.templates import starter, write_files

SAMPLE = '{"payment_id": "P-1", "amount": "2500.00", "paid_at": "2026-01-31T08:00:00Z"}'


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a commented starter project into FOLDER (this one if not said).

    Nothing is overwritten: if a file of the project is there already, nothing is written at all."""
    files = starter()
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        raise UsageError(
            f"{folder} has these files already, and nothing was changed: {', '.join(there)} "
            "(name another folder)"
        )
    write_files(folder, files)
    click.echo(f"Made in {folder.resolve()}:\n")
    for name in files:
        click.echo(f"  {name}")
    click.echo("\nNext, check the file, publish an event and start Dagster:\n")
    for line in next_steps(folder):
        click.echo(f"  {line}")
    click.echo("\nThen edit topics.yaml and definitions/pipelines.py.")


def next_steps(folder: Path) -> list[str]:
    """Commands that work in the new project, as they are to be typed here."""
    bus, dagster = _program("dagster-bus"), _program("dagster")
    steps = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    return [
        *steps,
        f"{bus} validate",
        f"{bus} publish payments.received {shlex.quote(SAMPLE)}",
        f"{bus} groups",
        f"{dagster} dev",
    ]


def _program(name: str) -> str:
    """A program of this environment: its name if the shell finds it, else its path."""
    here = Path(sys.executable).parent / name
    found = shutil.which(name)
    is_found = found is not None and Path(found) == here
    return name if is_found or not here.exists() else shlex.quote(str(here))
