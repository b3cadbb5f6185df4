"""`dagster-bus export` and `dagster-bus import`"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, cast

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dagster_bus.cli.options import START, durable_topics
from dagster_bus.cli.output import counted
from dagster_bus.cli.reading import STDIN, numbered_lines
from dagster_bus.cli.sending import send, understood
from dagster_bus.connectors.ndjson import from_line, to_line
from dagster_bus.core.event import Event, Published
from dagster_bus.core.position import Start
from dagster_bus.errors import UsageError
from dagster_bus.opening import Bus


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("-o", "--output", default=STDIN, metavar="FILE", help="A file that is to be made.")
@click.option(
    "--from",
    "start",
    type=START,
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="earliest, latest, an offset, or a time in ISO 8601.",
)
@click.pass_obj
def export(file: str, patterns: tuple[str, ...], output: str, start: Start) -> None:
    """Write the events of topics as lines of JSON, by time.

    All topics, or those that PATTERNS select; import reads them back without loss."""
    count = 0
    with Bus.open(file, create=False) as bus:
        names = durable_topics(bus, patterns)
        total = sum(each.end - each.first for each in bus.bounds(*names).values())
        with _target(output) as target:
            for event in _with_progress(bus.tail(*names, start=start), total):
                target.write(to_line(event) + b"\n")
                count += 1
    click.echo(f"{counted(count, 'event')} exported", err=True)


@click.command("import")
@click.argument("source_file", metavar="FILE")
@click.option("--topic", help="Publish all lines to this topic, whatever they name.")
@click.option("--skip", default=0, type=click.IntRange(0), help="Leave out the first lines.")
@click.pass_obj
def import_(file: str, source_file: str, topic: str | None, skip: int) -> None:
    """Publish events from lines of JSON as export writes them; - is standard input.

    Ids, keys, partitions and times are kept, times as far as order allows: a log's time never
    decreases. If a line is wrong, those before it are in, and it is said how to go on."""
    count = dropped = moved = 0
    with Bus.open(file) as bus:
        for group in numbered_lines(source_file, skip):
            lines, mistake = understood(group, lambda text: from_line(text, topic))
            for name, run in groupby(lines, key=lambda pair: pair[1].topic):
                numbered = [(number, line.message) for number, line in run]
                published, refused = send(bus, name, numbered)
                count += len(published)
                dropped += sum(at.duplicate for at in published)
                moved += _moved(published, [message.ts for _, message in numbered])
                if refused:
                    mistake = refused
                    break
            if mistake:
                done = f"{counted(count, 'event')} imported"
                raise mistake.told(f"{done}; mend it and go on with --skip {mistake.line - 1}")
    notes = [f"{counted(dropped, 'duplicate')} among them dropped"] if dropped else []
    notes += [f"{counted(moved, 'event')} with another time than given"] if moved else []
    click.echo(", ".join([f"{counted(count, 'event')} imported", *notes]), err=True)


def _moved(published: list[Published], given: list[int | None]) -> int:
    pairs = zip(published, given, strict=False)
    return sum(ts is not None and at.ts != ts and not at.duplicate for at, ts in pairs)


@contextmanager
def _target(output: str) -> Iterator[BinaryIO]:
    if output == STDIN:
        if sys.stdout is None:
            raise UsageError("standard output is closed; name a file with -o")
        yield cast(BinaryIO, sys.stdout.buffer)
        return
    try:
        stream = Path(output).open("xb")  # noqa: SIM115  (closed below)
    except FileExistsError:
        raise UsageError(f"{output} exists already; name a file that is to be made") from None
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
    with stream:
        yield stream


def _with_progress(events: Iterable[Event], total: int) -> Iterator[Event]:
    """The same events, with a bar on standard error if that is a screen."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from events
        return
    columns = (TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        for event in events:
            yield event
            bar.advance(task)
