"""`dagster-bus publish`"""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from dagster_bus.cli.options import attribute_values
from dagster_bus.cli.output import counted, say_position, stop_speaking
from dagster_bus.cli.reading import STDIN, numbered_lines
from dagster_bus.cli.sending import send, understood
from dagster_bus.core.encoding import parse_json
from dagster_bus.core.event import PRIORITIES, Message, Published
from dagster_bus.errors import InvalidPayloadError, UsageError
from dagster_bus.opening import Bus

DUPLICATE = 5


@click.command()
@click.argument("topic")
@click.argument("payload", required=False)
@click.option(
    "--file",
    "source_file",
    metavar="FILE",
    help="Publish each line of a file; - is standard input.",
)
@click.option("--key", help="Events of one key keep their order.")
@click.option("--key-field", metavar="NAME", help="Take the key from this field of each payload.")
@click.option("--source", help="Who publishes.")
@click.option(
    "-a",
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="An attribute that groups can filter by; repeat it for more.",
)
@click.option("--priority", type=click.Choice(PRIORITIES), default="normal", show_default=True)
@click.option(
    "--idempotency-key",
    metavar="TEXT",
    help="An event with the same key is not added again while the topic remembers it.",
)
@click.option("--ttl", "ttl_s", type=int, metavar="SECONDS", help="Of no interest after that.")
@click.option("--schema-version", type=int, help="The version that the payload is written in.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print where each event stands.")
@click.option("--json", "as_json", is_flag=True, help="Print positions as JSON, one a line.")
@click.pass_context
def publish(
    context: click.Context,
    /,
    topic: str,
    payload: str | None,
    source_file: str | None,
    key_field: str | None,
    attributes: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    **envelope: Any,
) -> None:
    """Append events to TOPIC: the JSON text PAYLOAD, or each line of a file or standard input.

    Prints for each where it stands (topic/partition:offset) and its id. Exit code 5: a single
    event was dropped as a duplicate."""
    if payload is not None and source_file is not None:
        raise click.UsageError("give a PAYLOAD or a --file, and not both")
    envelope["attributes"] = attribute_values(attributes, "--attribute")
    message = _message_maker(key_field, envelope)
    single = None if payload is None else _parsed(payload, message)
    say = partial(_say, quiet=quiet, as_json=as_json)
    with Bus.open(context.obj) as bus:
        _require_durable(bus, topic)
        if single is None:
            _stream(bus, topic, STDIN if source_file is None else source_file, message, say)
            return
        (position,) = bus.publish_many(topic, [single])
        say([position])
        if position.duplicate:
            context.exit(DUPLICATE)


def _say(published: list[Published], quiet: bool, as_json: bool) -> None:
    if quiet:
        return
    try:
        for position in published:
            say_position(position, as_json)
    except BrokenPipeError:  # publishing does not depend on who reads of it
        stop_speaking()


def _require_durable(bus: Bus, topic: str) -> None:
    """An event in this process's memory would be gone before anybody could read it."""
    if any(each.name == topic and not each.durable for each in bus.topics):
        raise UsageError(
            f"{topic} lives in the memory of the program that publishes to it (durable: false); "
            "publish from there"
        )


def _message_maker(key_field: str | None, envelope: dict[str, Any]) -> Callable[[Any], Message]:
    if key_field is None:
        return lambda payload: Message(payload, **envelope)
    if envelope["key"] is not None:
        raise click.UsageError("give --key or --key-field, and not both")
    rest = {name: value for name, value in envelope.items() if name != "key"}

    def message(payload: Any) -> Message:
        key = payload.get(key_field) if isinstance(payload, dict) else None
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InvalidPayloadError(f"no field {key_field!r} with text or a number for its key")
        return Message(payload, key=str(key), **rest)

    return message


def _stream(
    bus: Bus,
    topic: str,
    file: str,
    message: Callable[[Any], Message],
    say: Callable[[list[Published]], None],
) -> None:
    count = dropped = 0
    for group in numbered_lines(file):
        lines, mistake = understood(group, lambda text: message(parse_json(text)))
        published, refused = send(bus, topic, lines)
        say(published)
        count += len(published)
        dropped += sum(position.duplicate for position in published)
        if mistake := refused or mistake:
            raise mistake.told(f"{counted(count, 'event')} before it published; go on from there")
    again = f", {counted(dropped, 'duplicate')} among them dropped" if dropped else ""
    click.echo(f"{counted(count, 'event')} published{again}", err=True)


def _parsed(text: str, message: Callable[[Any], Message]) -> Message:
    try:
        return message(parse_json(text))
    except InvalidPayloadError as error:
        raise InvalidPayloadError(f"PAYLOAD: {error}") from None
