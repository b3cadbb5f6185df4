"""`dagster-bus validate`"""

import sys
from dataclasses import asdict

import click

from dagster_bus.cli.output import counted, print_json
from dagster_bus.errors import SpecError
from dagster_bus.spec.json_schema import json_schema
from dagster_bus.spec.load import load_spec
from dagster_bus.spec.unsupported import not_yet


@click.command()
@click.option("--schema", is_flag=True, help="Print a JSON Schema of the file, for editors.")
@click.option("--json", "as_json", is_flag=True, help="Print the mistakes as JSON.")
@click.pass_obj
def validate(file: str, schema: bool, as_json: bool) -> None:
    """Check the file and list every mistake with its line and column."""
    if schema:
        print_json(json_schema())
        return
    try:
        loaded = load_spec(file)
    except SpecError as error:
        if not as_json:
            raise
        print_json([asdict(problem) for problem in error.problems])
        sys.exit(error.exit_code)
    for note in not_yet(loaded):
        click.echo(f"note: {note}", err=True)
    if as_json:
        print_json([])
        return
    spec = loaded.spec
    what = f"{counted(len(spec.topics), 'topic')}, {counted(len(spec.groups), 'group')}"
    click.echo(f"{file} is fine: {what} (pipelines are looked at when Dagster loads them)")
