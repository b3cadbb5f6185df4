"""`dagster-bus dlq`: looking at dead letters"""

from typing import Any

import click

from dagster_bus.cli.letters import as_data, error_in_line, row_of, story_of
from dagster_bus.cli.options import LETTER, TIME, json_option
from dagster_bus.cli.output import as_second, print_json, print_rows
from dagster_bus.cli.redrive import purge, redrive
from dagster_bus.core.letters import Chosen, DeadLetters
from dagster_bus.core.store import LetterState
from dagster_bus.opening import Bus

STATES = {"dead": LetterState.DEAD, "redriven": LetterState.REDRIVEN, "all": None}


@click.group()
def dlq() -> None:
    """Look at dead letters, send them back to their group, or delete them."""


@dlq.command("list")
@click.argument("group")
@click.option(
    "-n",
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many at the most.",
)
@click.option("--before", type=LETTER, metavar="ID", help="Go on below this letter.")
@click.option("--fingerprint", metavar="TEXT", help="Only those that died of this error.")
@click.option("--topic", help="Only events of this topic.")
@click.option("--since", type=TIME, metavar="TIME", help="Only those that died then or later.")
@click.option("--until", type=TIME, metavar="TIME", help="Only those that died before.")
@click.option(
    "--state",
    type=click.Choice(list(STATES)),
    default="dead",
    show_default=True,
    help="Only letters that are dead, or that were sent back.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every error.")
@click.pass_obj
def list_(
    file: str,
    group: str,
    limit: int,
    before: int | None,
    fingerprint: str | None,
    topic: str | None,
    since: int | None,
    until: int | None,
    state: str,
    as_json: bool,
) -> None:
    """List what GROUP gave up on, newest first. Times are in ISO 8601, and in UTC."""
    chosen = Chosen(fingerprint=fingerprint, topic=topic, died_from_ms=since, died_before_ms=until)
    with Bus.open(file, create=False) as bus:
        found = bus.dead_letters(group).list(
            chosen, state=STATES[state], limit=limit + 1, before=before
        )
    letters = found[:limit]
    if as_json:
        print_json([as_data(letter) for letter in letters])
        return
    rows = [row_of(letter, with_state=state != "dead") for letter in letters]
    any_asked = before is not None or chosen != Chosen() or state != "dead"
    print_rows(rows, empty=f"{group} has no {'such' if any_asked else 'dead'} letters")
    if len(found) > limit:
        click.echo(f"There are more: go on with --before {letters[-1].id}, or raise --limit.")


@dlq.command()
@click.argument("group")
@json_option
@click.pass_obj
def counts(file: str, group: str, as_json: bool) -> None:
    """Count what GROUP gave up on by error, most frequent first.

    Errors that differ only in numbers, ids and quoted values have the same fingerprint."""
    with Bus.open(file, create=False) as bus:
        letters = bus.dead_letters(group)
        told = [_kind(letters, *each) for each in letters.counts().items()]
    if as_json:
        print_json(told)
    else:
        print_rows([_row(kind) for kind in told], empty=f"{group} has no dead letters")


@dlq.command()
@click.argument("group")
@click.argument("id", type=LETTER)
@json_option
@click.pass_obj
def show(file: str, group: str, id: int, as_json: bool) -> None:
    """Show one dead letter of GROUP: the whole event, and every attempt with its error.

    Exit code 3: there is no such letter."""
    with Bus.open(file, create=False) as bus:
        letter = bus.dead_letters(group).show(id)
    if as_json:
        print_json(as_data(letter))
    else:
        click.echo(story_of(letter))


def _kind(letters: DeadLetters, fingerprint: str, count: int) -> dict[str, Any]:
    """How often an error was deadly, and the newest letter that died of it; it may be gone again
    since it was counted."""
    newest = next(iter(letters.list(Chosen(fingerprint=fingerprint), limit=1)), None)
    example = {"id": newest.id, "died_ms": newest.died_ms} if newest else None
    error = error_in_line(newest) if newest else ""
    return {"fingerprint": fingerprint, "count": count, "newest": example, "error": error}


def _row(kind: dict[str, Any]) -> dict[str, Any]:
    newest = kind["newest"]
    return {
        "letters": kind["count"],
        "fingerprint": kind["fingerprint"],
        "newest": as_second(newest["died_ms"]) if newest else "",
        "error": kind["error"],
    }


dlq.add_command(redrive)
dlq.add_command(purge)
