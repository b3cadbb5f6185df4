"""`dagster-bus groups`"""

from typing import Any

import click

from dagster_bus.cli.output import print_json, print_rows
from dagster_bus.core.store import GroupProgress
from dagster_bus.opening import Bus

HEADINGS = {
    "group": "group",
    "published": "published",
    "processed": "processed",
    "filtered": "filtered",
    "dead_lettered": "dead",
    "in_runs": "in runs",
    "waiting_for_retry": "retry",
    "not_yet_reserved": "new",
}
"""Short words for narrow screens."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def groups(file: str, as_json: bool) -> None:
    """Show each group's account: where every event of its topics is."""
    with Bus.open(file, create=False) as bus:
        rows = [account(name, bus.group(name).progress()) for name in bus.groups]
    if as_json:
        print_json(rows)
    else:
        short = [{HEADINGS[key]: value for key, value in row.items()} for row in rows]
        print_rows(short, empty="no groups are declared")


def account(name: str, progress: GroupProgress) -> dict[str, Any]:
    """A group's events by where they are; `published` is the sum of the rest."""
    in_deliveries = progress.reserved + progress.running + progress.waiting
    return {
        "group": name,
        "published": progress.published,
        "processed": progress.tally.processed,
        "filtered": progress.tally.filtered,
        "dead_lettered": progress.tally.dead_lettered,
        "in_runs": progress.reserved + progress.running,
        "waiting_for_retry": progress.waiting,
        "not_yet_reserved": progress.lag - in_deliveries,
    }
