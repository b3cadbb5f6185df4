"""`dagster-bus replay`"""

from typing import Any

import click

from dagster_bus.cli.groups import account
from dagster_bus.cli.options import PARTITION, START, json_option
from dagster_bus.cli.output import counted, print_json, print_rows
from dagster_bus.core.position import Start
from dagster_bus.core.topic import TopicPartition
from dagster_bus.opening import Bus

WHERE = "earliest, latest, an offset, or a time in ISO 8601."


@click.command()
@click.argument("group")
@click.argument("name", required=False)
@click.option("--from", "start", type=START, default="earliest", metavar="WHERE", help=WHERE)
@click.option(
    "--to", "end", type=START, default="latest", metavar="WHERE", help=f"{WHERE} It is left out."
)
@click.option(
    "--partition",
    "partitions",
    type=PARTITION,
    multiple=True,
    metavar="TOPIC/N",
    help="Only of this partition; repeat it for more.",
)
@json_option
@click.pass_obj
def replay(
    file: str,
    group: str,
    name: str | None,
    start: Start,
    end: Start,
    partitions: tuple[TopicPartition, ...],
    as_json: bool,
) -> None:
    """Freeze the events of GROUP between two places under NAME, to be gone through again beside
    the group, which stays where it is. Without a NAME, list its replays.

    A replay is worked off as a group of its own, GROUP~NAME."""
    with Bus.open(file, create=False) as bus:
        if name is not None:
            bus.replay(group, name, start=start, end=end, partitions=partitions or None)
        found = bus.replays(group)
        wanted = found if name is None else [name]
        rows = [account(f"{group}~{each}", found[each].progress()) for each in wanted]
    if as_json:
        print_json(rows)
    elif name is None:
        print_rows([_row(row) for row in rows], empty=f"{group} has no replays")
    else:
        click.echo(f"{group}~{name} holds {counted(rows[0]['published'], 'event')}")


def _row(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "replay": told["group"],
        "events": told["published"],
        "processed": told["processed"],
        "dead": told["dead_lettered"],
        "to do": told["in_runs"] + told["waiting_for_retry"] + told["blocked"],
    }
