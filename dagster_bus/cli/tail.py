"""`dagster-bus tail`"""

import json
from collections.abc import Iterable
from itertools import islice

import click

from dagster_bus.cli.options import START, attribute_values, durable_topics
from dagster_bus.cli.output import as_time, stop_speaking
from dagster_bus.connectors.ndjson import to_line
from dagster_bus.core.event import Event
from dagster_bus.core.position import Start
from dagster_bus.core.topic import EventFilter
from dagster_bus.opening import Bus


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("-f", "--follow", is_flag=True, help="Go on as events come; Ctrl-C ends.")
@click.option(
    "--from",
    "start",
    type=START,
    metavar="WHERE",
    help="earliest, latest, an offset, or a time in ISO 8601. [default: earliest; latest if "
    "following]",
)
@click.option("--key", help="Only events with this key.")
@click.option(
    "--where",
    "equals",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only events with this attribute; repeat it for more.",
)
@click.option(
    "--has", "exists", multiple=True, metavar="NAME", help="Only events that have this attribute."
)
@click.option("-n", "--limit", type=click.IntRange(1), help="Stop after so many events.")
@click.option("--json", "as_json", is_flag=True, help="Print whole events as JSON, one a line.")
@click.pass_obj
def tail(
    file: str,
    patterns: tuple[str, ...],
    follow: bool,
    start: Start | None,
    key: str | None,
    equals: tuple[str, ...],
    exists: tuple[str, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the events of topics, all of them or those that PATTERNS select, by time.

    In a pattern * stands for one segment of a name and ** for any number."""
    wanted = EventFilter(attribute_values(equals, "--where"), exists)
    begin = start or ("latest" if follow else "earliest")
    with Bus.open(file, create=False) as bus:
        names = durable_topics(bus, patterns)
        events: Iterable[Event] = bus.tail(
            *names, start=begin, wanted=wanted, key=key, follow=follow
        )
        try:
            for event in islice(events, limit):
                click.echo(to_line(event) if as_json else _in_one_line(event))
        except KeyboardInterrupt:
            return  # the usual way to end it
        except BrokenPipeError:
            stop_speaking()


def _in_one_line(event: Event) -> str:
    place = f"{event.topic}/{event.partition}:{event.offset}"
    key = ""
    if event.key is not None:
        key = f"  {event.key if event.key.isprintable() else json.dumps(event.key)}"
    more = f"  {event.attributes_json}" if event.attributes_json != "{}" else ""
    return f"{as_time(event.ts)}  {place}{key}{more}  {event.payload_json}"
