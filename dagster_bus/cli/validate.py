"""`dagster-bus validate`"""

import click

from dagster_bus.spec.load import load_spec


@click.command()
@click.pass_obj
def validate(file: str) -> None:
    """Check the file and list every mistake with its line."""
    spec = load_spec(file).spec
    click.echo(f"{file} is fine: {len(spec.topics)} topics, {len(spec.groups)} groups")
