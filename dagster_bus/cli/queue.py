"""`dagster-bus check`, `read`, `ack` and `ack-all`: a group's events as a queue for people."""

import time
from typing import Any

import click

from dagster_bus.cli.asking import ask, yes_option
from dagster_bus.cli.options import json_option
from dagster_bus.cli.output import counted, print_json, print_rows
from dagster_bus.connectors.ndjson import to_line
from dagster_bus.core.clock import system_clock
from dagster_bus.core.event import PRIORITIES, Event
from dagster_bus.core.ranges import Place
from dagster_bus.core.topic import OffsetRange
from dagster_bus.errors import UnknownEvent
from dagster_bus.opening import Bus

LOOKED_AT = 10_000


class PlaceType(click.ParamType[Place]):
    """Where an event stands, as publishing says it: TOPIC/PARTITION:OFFSET."""

    name = "event"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Place:
        if isinstance(value, Place):
            return value
        where, colon, offset = str(value).partition(":")
        topic, slash, partition = where.partition("/")
        if not (colon and slash and offset.isdecimal() and partition.isdecimal()):
            self.fail(
                f"{value!r} is not TOPIC/PARTITION:OFFSET, as publish prints it", param, context
            )
        return Place(topic, int(partition), int(offset))


EVENT = PlaceType()


@click.command()
@click.argument("group")
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1), help="How many at the most."
)
@json_option
@click.pass_obj
def check(file: str, group: str, limit: int, as_json: bool) -> None:
    """List what GROUP still has to do: most urgent first, then oldest first.

    Looks at the oldest 10,000 of these events."""
    with Bus.open(file, create=False) as bus:
        events = bus.group(group).pending(LOOKED_AT)[:limit]
        lag = bus.group(group).progress().lag
    now_ms = system_clock()
    if as_json:
        print_json([_told(event, now_ms) for event in events])
        return
    print_rows([_row(event, now_ms) for event in events], empty=f"{group} has nothing to do")
    if lag > len(events):
        click.echo(f"{len(events):,} of {counted(lag, 'event')}; --limit shows more.")


@click.command()
@click.argument("event", type=EVENT)
@click.pass_obj
def read(file: str, event: Place) -> None:
    """Print one whole EVENT, named TOPIC/PARTITION:OFFSET, as JSON."""
    with Bus.open(file, create=False) as bus:
        at = OffsetRange(event.topic, event.partition, event.offset, event.offset)
        found = list(bus.read(at.topic, at.partition, at.first, at.last))
    if not found:
        raise UnknownEvent(f"there is no event {at.topic}/{at.partition}:{at.first}")
    click.echo(to_line(found[0]))


@click.command()
@click.argument("group")
@click.argument("events", type=EVENT, nargs=-1, required=True)
@click.pass_obj
def ack(file: str, group: str, events: tuple[Place, ...]) -> None:
    """Say that EVENTS, each named TOPIC/PARTITION:OFFSET, were processed for GROUP."""
    with Bus.open(file, create=False) as bus:
        done = bus.group(group).acknowledge(list(events))
    click.echo(f"{counted(done, 'event')} acknowledged")


@click.command("ack-all")
@click.argument("group")
@yes_option
@click.pass_obj
def ack_all(file: str, group: str, yes: bool) -> None:
    """Say that all was processed that GROUP has to do and nobody works on."""
    with Bus.open(file, create=False) as bus:
        lag = bus.group(group).progress().lag
        ask(f"Acknowledge up to {counted(lag, 'event')} that {group} has not processed?", yes)
        done = bus.group(group).acknowledge()
    click.echo(f"{counted(done, 'event')} acknowledged")


def _told(event: Event, now_ms: int) -> dict[str, Any]:
    return {
        "event": f"{event.topic}/{event.partition}:{event.offset}",
        "id": event.id,
        "priority": PRIORITIES[event.priority],
        "age_s": round((now_ms - event.ts) / 1000, 3),
        "key": event.key,
        "source": event.source,
        "payload": event.payload,
    }


def _row(event: Event, now_ms: int) -> dict[str, Any]:
    told = _told(event, now_ms)
    return {
        "event": told["event"],
        "priority": told["priority"],
        "age": time.strftime("%H:%M:%S", time.gmtime(told["age_s"]))
        if told["age_s"] < 86_400
        else f"{told['age_s'] // 86_400:.0f} days",
        "payload": event.payload_json,
    }
