"""`dagster-bus groups` and `dagster-bus resume`"""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from dagster_bus.cli.options import json_option
from dagster_bus.cli.output import as_second, counted, print_json, print_rows
from dagster_bus.core.breaker import Circuit
from dagster_bus.core.groups import Group
from dagster_bus.core.store import GroupProgress
from dagster_bus.opening import Bus

HEADINGS = {
    "group": "group",
    "published": "published",
    "processed": "processed",
    "filtered": "filtered",
    "expired": "expired",
    "dead_lettered": "dead",
    "in_runs": "in runs",
    "waiting_for_retry": "retry",
    "blocked": "blocked",
    "not_yet_reserved": "new",
}
"""Short words for narrow screens."""

ONLY_IF_ANY = ("expired", "blocked")
"""Columns that most screens are too dear for as long as all that stands there is 0."""


@click.command()
@json_option
@click.pass_obj
def groups(file: str, as_json: bool) -> None:
    """Show each group's account: where every event of its topics is."""
    with Bus.open(file, create=False) as bus:
        rows = [_summary(bus.group(name)) for name in bus.groups]
    if as_json:
        print_json(rows)
        return
    left_out = [key for key in ONLY_IF_ANY if not any(row[key] for row in rows)]
    short = [
        {
            **{HEADINGS[key]: row[key] for key in HEADINGS if key not in left_out},
            "state": state_in_words(row),
        }
        for row in rows
    ]
    print_rows(short, empty="no groups are declared")
    say_how_to_resume(rows)


@click.command()
@click.argument("group")
@json_option
@click.pass_obj
def resume(file: str, group: str, as_json: bool) -> None:
    """Let GROUP go on that is blocked by a batch that failed for good.

    The batch starts afresh, as if it had never been tried."""
    with Bus.open(file, create=False) as bus:
        resumed = bus.group(group).resume()
        now = state(bus.group(group), bus.group(group).progress())
    if as_json:
        print_json({"group": group, "resumed": resumed, **now})
    elif resumed:
        click.echo(f"{group} goes on: {counted(resumed, 'delivery', 'deliveries')} to start afresh")
    else:
        pause = f"; it is {state_in_words(now)}" if now["state"] == "paused" else ""
        click.echo(f"{group} was not blocked, and nothing was changed{pause}")


def _summary(group: Group) -> dict[str, Any]:
    progress = group.progress()
    return {**account(group.config.name, progress), **state(group, progress)}


def account(name: str, progress: GroupProgress) -> dict[str, Any]:
    """A group's events by where they are; `published` is the sum of the rest."""
    in_runs = progress.reserved + progress.running
    return {
        "group": name,
        "published": progress.published,
        "processed": progress.tally.processed,
        "filtered": progress.tally.filtered,
        "expired": progress.tally.expired,
        "dead_lettered": progress.tally.dead_lettered,
        "in_runs": in_runs,
        "waiting_for_retry": progress.waiting,
        "blocked": progress.blocked,
        "not_yet_reserved": progress.lag - in_runs - progress.waiting - progress.blocked,
    }


def state(group: Group, progress: GroupProgress) -> dict[str, Any]:
    """Whether a group gets on: it runs, or pauses because of failures, or tries one batch after
    such a pause, or is blocked."""
    circuit, breaker = group.circuit()
    names = {Circuit.CLOSED: "runs", Circuit.OPEN: "paused", Circuit.HALF_OPEN: "probing"}
    return {
        "state": "blocked" if progress.blocked else names[circuit],
        "paused_until_ms": breaker.paused_until_ms if circuit is Circuit.OPEN else None,
    }


def state_in_words(told: Mapping[str, Any]) -> str:
    """The same for people, in a few words. A pause is told with its time of day, in UTC."""
    word: str = told["state"]
    if word == "paused":
        return f"paused until {as_second(told['paused_until_ms'])[11:]}"
    return word


def say_how_to_resume(rows: Iterable[Mapping[str, Any]]) -> None:
    """A line for each group that is blocked."""
    for row in rows:
        if row["state"] == "blocked":
            click.echo(
                f"{row['group']} is blocked by a batch that failed for good. Mend the cause, then: "
                f"dagster-bus resume {row['group']}"
            )
