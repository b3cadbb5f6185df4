"""`dagster-bus seek`"""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from dagster_bus.cli.asking import ask, yes_option
from dagster_bus.cli.options import PARTITION, START, json_option
from dagster_bus.cli.output import counted, print_json, print_rows
from dagster_bus.core.position import Start
from dagster_bus.core.seeking import Move
from dagster_bus.core.topic import TopicPartition
from dagster_bus.opening import Bus


@click.command()
@click.argument("group")
@click.option(
    "--to",
    "start",
    type=START,
    required=True,
    metavar="WHERE",
    help="earliest, latest, an offset, or a time in ISO 8601.",
)
@click.option(
    "--partition",
    "partitions",
    type=PARTITION,
    multiple=True,
    metavar="TOPIC/N",
    help="Only in this partition; repeat it for more.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Also while deliveries are under way there; what their workers do is then refused.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@json_option
@click.pass_obj
def seek(
    file: str,
    group: str,
    start: Start,
    partitions: tuple[TopicPartition, ...],
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send GROUP to another place in its topics: to read events again, or to leave some out.

    Shows what that means for each partition, and asks. What waits there for another attempt is
    given up; dead letters stay."""
    chosen = list(dict.fromkeys(partitions)) or None
    with Bus.open(file, create=False) as bus:
        reader = bus.group(group)
        moves = reader.seek(start, chosen, force=force, dry_run=True)
        told = _told(moves, bus)
        if not as_json:
            print_rows([_row(each) for each in told], empty=f"{group} reads no partitions")
        if not dry_run:
            ask(f"Send {group} there?", yes)
            told = _told(reader.seek(start, chosen, force=force), bus)
    if as_json:
        print_json(told)
        return
    again, left_out = (sum(each[name] for each in told) for name in ("again", "left_out"))
    done, will = ("Nothing was changed", "would") if dry_run else (f"{group} was moved", "will")
    click.echo(f"{done}: {counted(again, 'event')} {will} be read again, {left_out:,} left out")


def _told(moves: Iterable[Move], bus: Bus) -> list[dict[str, Any]]:
    """What seeking does in each partition: events that are read again, events that are left out,
    and events of open deliveries that are given up. A place may lie beyond the end, where there
    are no events yet."""
    ends = {at: bounds.end for at, bounds in bus.bounds().items()}
    return [_move(move, ends[move.partition]) for move in moves]


def _move(move: Move, end: int) -> dict[str, Any]:
    forward = min(move.new, end) - min(move.old, end)
    return {
        **move.partition._asdict(),
        "old": move.old,
        "new": move.new,
        "again": max(0, -forward),
        "left_out": max(0, forward),
        "given_up": move.abandoned,
    }


def _row(move: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "partition": f"{move['topic']}/{move['partition']}",
        "from": move["old"],
        "to": move["new"],
        "again": move["again"],
        "left out": move["left_out"],
        "given up": move["given_up"],
    }
