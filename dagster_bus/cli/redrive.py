"""`dagster-bus dlq redrive` and `dagster-bus dlq purge`"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dagster_bus.cli.asking import ask, yes_option
from dagster_bus.cli.options import DURATION, LETTER, json_option
from dagster_bus.cli.output import counted, print_json
from dagster_bus.core.letters import Chosen, DeadLetters, choose
from dagster_bus.core.patching import Patch, parse_patch
from dagster_bus.errors import BusError, InvalidPayloadError, UsageError
from dagster_bus.opening import Bus
from dagster_bus.spec.units import in_words

FILE_SIGN = "@"


@click.command()
@click.argument("group")
@click.argument("ids", nargs=-1, type=LETTER, metavar="[ID]...")
@click.option("--fingerprint", metavar="TEXT", help="All that died of this error.")
@click.option("--topic", help="All events of this topic.")
@click.option("--all", "everything", is_flag=True, help="All dead letters of the group.")
@click.option(
    "--patch",
    "patch_text",
    metavar="JSON",
    help="Change the payloads by a JSON Patch (RFC 6902), or by that in a file: @FILE.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 1_000_000),
    metavar="N",
    help="Let so many a second become due, and not all of them at once.",
)
@click.option("--dry-run", is_flag=True, help="Only count them, and try the patch on them.")
@yes_option
@json_option
@click.pass_obj
def redrive(
    file: str,
    group: str,
    ids: tuple[int, ...],
    fingerprint: str | None,
    topic: str | None,
    everything: bool,
    patch_text: str | None,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead letters back to GROUP, and to no other: they are tried afresh.

    Say which: by their IDs, by --fingerprint and --topic, or --all of them. With a patch, all of
    the payloads are tried before any letter is sent."""
    if rate is not None and math.isnan(rate):
        raise click.BadParameter("nan is not a number", param_hint="--rate")
    chosen = _chosen(ids, fingerprint, topic, everything)
    patch = None if patch_text is None else _patch(patch_text)
    with Bus.open(file, create=False) as bus:
        letters = bus.dead_letters(group)
        number = letters.number(chosen, patch)
        sent = 0
        if number and not dry_run:
            ask(f"Send {counted(number, 'dead letter')} back to {group}?", yes)
            sent = _send(letters, chosen, patch, rate, number)
    if as_json:
        print_json({"group": group, "found": number, "redriven": sent, "dry_run": dry_run})
    elif dry_run:
        click.echo(f"{counted(number, 'letter')} would go back to {group}; nothing was changed")
    else:
        over = f", over {sent / rate:,.0f} s" if rate and sent > rate else ""
        click.echo(f"{counted(sent, 'letter')} sent back to {group}{over}")


@click.command()
@click.argument("group")
@click.option(
    "--older-than",
    "older_than_ms",
    type=DURATION,
    required=True,
    metavar="DURATION",
    help="Those that died so long ago, such as 30d or 12h.",
)
@yes_option
@json_option
@click.pass_obj
def purge(file: str, group: str, older_than_ms: int, yes: bool, as_json: bool) -> None:
    """Delete old dead letters of GROUP for good, and what is kept of those sent back.

    The group's account still counts them."""
    with Bus.open(file, create=False) as bus:
        letters = bus.dead_letters(group)
        age = in_words(older_than_ms)
        ask(f"Delete the letters of {group} that died {age} ago or earlier, for good?", yes)
        purged = letters.purge(older_than_ms)
    if as_json:
        print_json({"group": group, "purged": purged})
    else:
        click.echo(f"{counted(purged, 'letter')} of {group} deleted")


def _chosen(
    ids: tuple[int, ...], fingerprint: str | None, topic: str | None, everything: bool
) -> Chosen:
    try:
        return choose(ids=ids, fingerprint=fingerprint, topic=topic, everything=everything)
    except UsageError:
        raise click.UsageError(
            "say which letters in one way: IDs, or --fingerprint and --topic, or --all"
        ) from None


def _patch(text: str) -> Patch:
    """A patch that is given as JSON text, or as @ and the file that it stands in."""
    if text.startswith(FILE_SIGN):
        file = text.removeprefix(FILE_SIGN)
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--patch: cannot read {file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"--patch: {file} is not text in UTF-8") from None
    try:
        return parse_patch(text)
    except InvalidPayloadError as error:
        raise UsageError(f"--patch: {error}") from None


def _send(
    letters: DeadLetters, chosen: Chosen, patch: Patch | None, rate: float | None, number: int
) -> int:
    """Send letters back step by step. Whoever stops it, or whatever does, what was done is told."""
    sent = 0
    try:
        with _progress(number) as advance:
            for step in letters.redrive(chosen, patch=patch, per_second=rate):
                sent += len(step)
                advance(len(step))
    except (BusError, KeyboardInterrupt):
        click.echo(f"{counted(sent, 'letter')} sent back before this:", err=True)
        raise
    return sent


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a screen."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("sending back"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)
