"""`dagster-bus publish`"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import click

from dagster_bus.cli.output import standard_input
from dagster_bus.core.event import Attribute, Message, Published
from dagster_bus.errors import InvalidPayloadError
from dagster_bus.opening import Bus

BATCH = 1_000


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
    """Append events to TOPIC: the JSON text PAYLOAD, or standard input with one JSON text a
    line."""
    extra = _attributes(attributes)
    values = [_parsed(payload, "PAYLOAD")] if payload is not None else _lines(standard_input())
    messages = (Message(value, key, source, extra) for value in values)
    count = 0
    with Bus.open(file) as bus:
        try:
            while batch := list(islice(messages, BATCH)):
                positions = bus.publish_many(topic, batch)
                count += len(positions)
                for position in positions:
                    _show(position, as_json)
        finally:
            if payload is None:
                click.echo(f"{count} events published", err=True)


def _lines(lines: Iterable[bytes]) -> Iterator[Any]:
    """The payload of each line that has one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _parsed(line, f"line {number}")


def _parsed(text: str | bytes, place: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidPayloadError(f"{place} is not JSON: {error}") from None


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
