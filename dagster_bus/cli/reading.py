"""Files and standard input as lines, with a progress bar where somebody looks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import cast

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from dagster_bus.errors import UsageError

CHUNK = 1 << 20
LINES_AT_ONCE = 1_000
LONGEST_LINE = 64 << 20
STDIN = "-"


def numbered_lines(file: str, skip: int = 0) -> Iterator[list[tuple[int, bytes]]]:
    """The lines of a file, or of standard input, in groups, each group as soon as it is there.

    Lines are counted from 1; the first `skip` and those that are empty are left out."""
    number = 0
    with _opened(file) as stream, _progress(file) as advance:
        for lines in _groups_of_lines(stream):
            advance(sum(map(len, lines)) + len(lines))
            group = [(number + n, line) for n, line in enumerate(lines, 1) if line.strip()]
            number += len(lines)
            wanted = [pair for pair in group if pair[0] > skip]
            if wanted:
                yield wanted


def _groups_of_lines(stream: BufferedIOBase) -> Iterator[list[bytes]]:
    rest: list[bytes] = []
    while chunk := stream.read1(CHUNK):
        head, *lines = chunk.split(b"\n")
        rest.append(head)
        if sum(map(len, rest)) > LONGEST_LINE:
            raise UsageError(f"a line is longer than {LONGEST_LINE >> 20} MiB; is it one event?")
        if not lines:
            continue
        whole = [b"".join(rest), *lines[:-1]]
        rest = [lines[-1]]
        for start in range(0, len(whole), LINES_AT_ONCE):
            yield whole[start : start + LINES_AT_ONCE]
    if any(rest):
        yield [b"".join(rest)]


@contextmanager
def _opened(file: str) -> Iterator[BufferedIOBase]:
    if file == STDIN:
        if sys.stdin is None:
            raise UsageError("standard input is closed; name a file, or give a payload")
        if sys.stdin.isatty():
            click.echo("Reading one JSON text a line; Ctrl-D ends.", err=True)
        yield cast(BufferedIOBase, sys.stdin.buffer)
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    with stream:
        yield cast(BufferedIOBase, stream)


@contextmanager
def _progress(file: str) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of a file, if standard error is a screen; nothing otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal or file == STDIN:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(Path(file).name, total=Path(file).stat().st_size)
        yield lambda count: bar.advance(task, count)
