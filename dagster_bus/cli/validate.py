"""`dagster-bus validate`"""

import click

from dagster_bus.cli.output import counted
from dagster_bus.spec.load import load_spec


@click.command()
@click.pass_obj
def validate(file: str) -> None:
    """Check the file and list every mistake with its line."""
    spec = load_spec(file).spec
    what = f"{counted(len(spec.topics), 'topic')}, {counted(len(spec.groups), 'group')}"
    click.echo(f"{file} is fine: {what} (pipelines are looked at when Dagster loads them)")
