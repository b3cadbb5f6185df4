"""`dagster-bus status`"""

from collections import Counter
from itertools import chain
from typing import Any, NamedTuple

import click

from dagster_bus.cli.groups import say_how_to_resume, state, state_in_words
from dagster_bus.cli.options import json_option
from dagster_bus.cli.output import as_age, counted, print_json, print_rows
from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import PRIORITIES
from dagster_bus.core.groups import Group
from dagster_bus.core.ranges import Ranges, count
from dagster_bus.core.store import GroupProgress
from dagster_bus.opening import Bus

COUNT_AT_MOST = 10_000
"""Priorities stand in the events, so they are read to be counted; not more than so many."""

TRIES = 3

WARNINGS = {
    State.RUNNING: "not acknowledged, and the lease ended {ago} ago: the worker is silent",
    State.RESERVED: "handed to a worker that should have come {ago} ago",
    State.WAITING: "due for another attempt since {ago}, and nobody takes them up",
}


class Account(NamedTuple):
    """A group's events at one moment."""

    progress: GroupProgress
    deliveries: list[Delivery]
    new: Ranges
    """Events that no delivery ever took."""

    @property
    def agrees(self) -> bool:
        return self.progress.lag == count(self.new) + sum(each.size for each in self.deliveries)


@click.command()
@click.argument("group", required=False)
@json_option
@click.pass_obj
def status(file: str, group: str | None, as_json: bool) -> None:
    """Show what GROUP, or each group, has yet to do and has done, and what takes too long.

    Pending events are counted by priority, unless there are more than 10,000 of them."""
    with Bus.open(file, create=False) as bus:
        names = bus.groups if group is None else [group]
        told = [_status(bus, bus.group(name)) for name in names]
    if as_json:
        print_json(told)
        return
    print_rows([_row(each) for each in told], empty="no groups are declared")
    say_how_to_resume(told)
    for each in told:
        for warning in each["warnings"]:
            click.echo(f"warning: {each['group']}: {_in_words(warning)}")


def _status(bus: Bus, group: Group) -> dict[str, Any]:
    now_ms = system_clock()
    account = _account(group)
    progress = account.progress
    few = progress.lag <= COUNT_AT_MOST
    return {
        "group": group.config.name,
        "pending": progress.lag,
        "pending_by_priority": _by_priority(bus, group, account) if few else None,
        "processed": progress.tally.processed,
        "filtered": progress.tally.filtered,
        "expired": progress.tally.expired,
        "dead_lettered": progress.tally.dead_lettered,
        **state(group, progress),
        "warnings": _warnings(group, account, now_ms),
    }


def _account(group: Group) -> Account:
    """What is read one after the other, and again if somebody was at work in between."""
    for _ in range(TRIES):
        account = Account(group.progress(), group.open_deliveries(), group.untaken())
        if account.agrees:
            break
    return account


def _by_priority(bus: Bus, group: Group, account: Account) -> dict[str, int]:
    held = (event for each in account.deliveries for event in group.events(each))
    new = (
        event
        for part in account.new
        for event in bus.read(part.topic, part.partition, part.first, part.last)
    )
    found = Counter(event.priority for event in chain(held, new))
    return {name: found[number] for number, name in enumerate(PRIORITIES)}


def _warnings(group: Group, account: Account, now_ms: int) -> list[dict[str, Any]]:
    """Events that are not acknowledged although it is time: their worker is silent or never came,
    or they may be tried again, and for longer than a lease nobody does."""
    patience = {State.WAITING: group.config.lease_ms}
    found = []
    for kind in WARNINGS:
        late = [
            each
            for each in account.deliveries
            if each.state is kind and each.is_due(now_ms - patience.get(kind, 0))
        ]
        if late:
            found.append(
                {
                    "deliveries": kind.value,
                    "events": sum(each.size for each in late),
                    "late_ms": max(now_ms - each.due_ms for each in late),
                }
            )
    return found


def _in_words(warning: dict[str, Any]) -> str:
    text = WARNINGS[State(warning["deliveries"])].format(ago=as_age(warning["late_ms"]))
    return f"{counted(warning['events'], 'event')} {text}"


def _row(told: dict[str, Any]) -> dict[str, Any]:
    by_priority = told["pending_by_priority"] or dict.fromkeys(PRIORITIES, "many")
    return {
        "group": told["group"],
        "pending": told["pending"],
        **by_priority,
        "processed": told["processed"],
        "filtered": told["filtered"],
        "expired": told["expired"],
        "dead": told["dead_lettered"],
        "state": state_in_words(told),
    }
