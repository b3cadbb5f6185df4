"""`dagster-bus publish`"""

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from dagster_bus.cli.output import counted, standard_input
from dagster_bus.core.event import Attribute, Message, Published
from dagster_bus.errors import InvalidPayloadError
from dagster_bus.opening import Bus


@click.command()
@click.argument("topic")
@click.argument("payload", required=False)
@click.option("--key", help="Events of one key keep their order.")
@click.option("--source", help="Who publishes.")
@click.option(
    "-a",
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="An attribute that groups can filter by; repeat it for more.",
)
@click.option("--json", "as_json", is_flag=True, help="Print positions as JSON, one a line.")
@click.pass_obj
def publish(
    file: str,
    topic: str,
    payload: str | None,
    key: str | None,
    source: str | None,
    attributes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Append events to TOPIC: the JSON text PAYLOAD, or each line of standard input.

    Prints for each where it stands (topic/partition:offset) and its id."""
    extra = _attributes(attributes)
    if payload is None and sys.stdin.isatty():
        click.echo("Reading one JSON text a line; Ctrl-D ends.", err=True)
    with Bus.open(file) as bus:

        def send(values: list[Any]) -> None:
            messages = [Message(value, key, source, extra) for value in values]
            for position in bus.publish_many(topic, messages):
                _show(position, as_json)

        if payload is not None:
            send([_parsed(payload, "PAYLOAD")])
        else:
            _stream(send)


def _stream(send: Callable[[list[Any]], None]) -> None:
    """Send standard input as it comes. What stands before a mistake is sent, and said to be."""
    number = count = 0
    for lines in standard_input():
        values = []
        try:
            for line in lines:
                number += 1
                if line.strip():
                    values.append(_parsed(line, f"line {number}"))
        except InvalidPayloadError as error:
            send(values)
            count += len(values)
            raise InvalidPayloadError(
                f"{error} ({counted(count, 'event')} before it published; go on from there)"
            ) from None
        send(values)
        count += len(values)
    click.echo(f"{counted(count, 'event')} published", err=True)


def _parsed(text: str | bytes, place: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at column {error.colno}"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    raise InvalidPayloadError(f"{place} is not JSON: {problem}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")


def _attributes(pairs: tuple[str, ...]) -> dict[str, Attribute]:
    """NAME=VALUE pairs; a value is a number or a boolean if it looks like one, else text."""
    found: dict[str, Attribute] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--attribute")
        try:
            value = json.loads(text, parse_constant=str)
        except (ValueError, RecursionError):
            value = text
        found[name] = value if isinstance(value, str | int | float) else text
    return found


def _show(position: Published, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(position._asdict()))
    else:
        click.echo(f"{position.topic}/{position.partition}:{position.offset}  {position.id}")
