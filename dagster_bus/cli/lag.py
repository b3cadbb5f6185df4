"""`dagster-bus lag`"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from dagster_bus.cli.output import (
    as_age,
    least_width,
    print_json,
    print_rows,
    stop_speaking,
    table_of,
)
from dagster_bus.core.clock import system_clock
from dagster_bus.core.groups import Group
from dagster_bus.core.standing import standing_of
from dagster_bus.opening import Bus

EVERY_S = 1.0
NOTHING = "no groups are declared"

Rows = Sequence[Mapping[str, Any]]


@click.command()
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("-w", "--watch", is_flag=True, help="Look again every second; Ctrl-C ends.")
@click.option("--times", type=click.IntRange(1), help="With --watch: look so often, and end.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; with --watch one line each second."
)
@click.pass_obj
def lag(file: str, groups: tuple[str, ...], watch: bool, times: int | None, as_json: bool) -> None:
    """Show how far groups are behind, partition by partition; all groups, or those named.

    Up to its cursor a group has settled every event of a partition. The lag is what comes after
    it, and `oldest` is how long ago the first of these events was published."""
    if times is not None and not watch:
        raise click.UsageError("--times goes with --watch")
    with Bus.open(file, create=False) as bus:
        chosen = [bus.group(name) for name in groups or bus.groups]
        if not watch:
            rows = _rows(bus, chosen)
            print_json(rows) if as_json else print_rows(_for_people(rows), empty=NOTHING)
            return
        try:
            _show(_looks(bus, chosen, times), as_json)
        except KeyboardInterrupt:
            return  # the usual way to end it
        except BrokenPipeError:
            stop_speaking()


def _looks(bus: Bus, groups: Sequence[Group], times: int | None) -> Iterator[Rows]:
    """What there is to see, once every second."""
    for number in count(1):
        yield _rows(bus, groups)
        if number == times:
            return
        time.sleep(EVERY_S)


def _show(looks: Iterator[Rows], as_json: bool) -> None:
    """On a screen that is wide enough each look takes the place of the one before; elsewhere they
    follow each other."""
    console = Console()
    first = next(looks)
    looks = chain([first], looks)
    is_wide = not first or least_width(_for_people(first)) <= console.width
    if as_json or not console.is_terminal or not is_wide:
        for rows in looks:
            if as_json:
                click.echo(json.dumps(rows, ensure_ascii=False))
            else:
                print_rows(_for_people(rows), empty=NOTHING)
        return
    with Live(console=console, auto_refresh=False) as live:
        for rows in looks:
            table = table_of(_for_people(rows), console.width) if rows else NOTHING
            live.update(table, refresh=True)


def _rows(bus: Bus, groups: Sequence[Group]) -> list[dict[str, Any]]:
    return [row for group in groups for row in _of_group(bus, group)]


def _of_group(bus: Bus, group: Group) -> Iterator[dict[str, Any]]:
    for each in standing_of(bus, group).partitions:
        waited_ms = None if each.oldest_ts is None else max(0, system_clock() - each.oldest_ts)
        yield {
            "group": group.config.name,
            "topic": each.at.topic,
            "partition": each.at.partition,
            "end": each.end,
            "cursor": each.cursor,
            "lag": each.lag,
            "oldest_ms": waited_ms,
        }


def _for_people(rows: Rows) -> list[dict[str, Any]]:
    return [
        {
            "group": row["group"],
            "partition": f"{row['topic']}/{row['partition']}",
            "end": row["end"],
            "cursor": row["cursor"],
            "lag": row["lag"],
            "oldest": "" if row["oldest_ms"] is None else as_age(row["oldest_ms"]),
        }
        for row in rows
    ]
