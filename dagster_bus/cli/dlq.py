"""`dagster-bus dlq`"""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from dagster_bus.cli.output import print_json, print_rows
from dagster_bus.core.store import DeadLetter
from dagster_bus.opening import Bus


@click.group()
def dlq() -> None:
    """Look at dead letters."""


@dlq.command("list")
@click.argument("group")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many at the most.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every error.")
@click.pass_obj
def list_(file: str, group: str, limit: int, as_json: bool) -> None:
    """List what GROUP gave up on, newest first."""
    with Bus.open(file, create=False) as bus:
        letters = bus.dead_letters(group, limit=limit)
        total = sum(bus.dead_letter_counts(group).values())
    if as_json:
        print_json([_story(letter) for letter in letters])
    else:
        print_rows([_row(letter) for letter in letters], empty=f"{group} has no dead letters")
        if total > len(letters):
            click.echo(f"The newest {len(letters):,} of {total:,}; --limit shows more.")


def _row(letter: DeadLetter) -> dict[str, Any]:
    event, last = letter.event, letter.errors[-1]
    return {
        "died": datetime.fromtimestamp(letter.died_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "event": f"{event.topic}/{event.partition}:{event.offset}",
        "attempts": len(letter.errors),
        "error": " ".join(f"{last.type}: {last.message}".split()),
    }


def _story(letter: DeadLetter) -> dict[str, Any]:
    event = letter.event._asdict()
    del event["payload_json"], event["attributes_json"]
    return {
        "id": letter.id,
        "group": letter.group,
        "delivery": letter.delivery,
        "fingerprint": letter.fingerprint,
        "died_ms": letter.died_ms,
        "event": {**event, "attributes": letter.event.attributes, "payload": letter.event.payload},
        "errors": [asdict(error) for error in letter.errors],
    }
