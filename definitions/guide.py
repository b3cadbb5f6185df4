"""What the demo says to whoever watches it: where to look, and what to try next."""

import json
import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape

from dagster_bus import Bus
from dagster_bus.core.store import DeadLetter, GroupProgress
from dagster_bus.orchestration.dev import DagsterDev
from dagster_bus.spark.warm import FOLDER
from definitions.shop import NO_CURRENCY
from definitions.stage import PROJECT

BIN = ".venv/bin"

REPLAY = '{"ops": {"replay_events": {"config": {"group": "revenue", "name": "again"}}}}'

EXPORTED = ("BUS_STORE", "DATA_DIR", FOLDER)


def where_to_look(dagster: DagsterDev) -> str:
    """The pages of the UI, and the commands for another terminal."""
    places = "".join(f"  export {name}={os.environ[name]}\n" for name in EXPORTED)
    return f"""
[bold]Dagster is at {dagster.url}[/bold]  (its log: {dagster.log})

A shop now publishes orders, payments and shipments. Each group in topics.yaml has a sensor that
starts Spark runs for them, and each run adds to the group's table. Look at

  {dagster.url}/asset-groups
      the lineage: payments become a table, its rows events once more, and these another table
  {dagster.url}/runs
      a run for each batch of events
  {dagster.url}/assets/shipments?view=partitions
      a window that was over before the demo began: one carrier reports a day late
  {dagster.url}/assets/payments/dead_letters
      payments that are garbled, that name no order, or that pay nothing: the reason of each
  {dagster.url}/assets/order_history/dead_letters
      orders that nobody can price: after a minute or two, when two attempts have failed, and one
      more run has found out which orders fail alone

Try, in another terminal:

  cd {PROJECT}
{places}  export DAGSTER_HOME={dagster.log.parent}

  {BIN}/dagster-bus groups                           [dim]# where every event is[/dim]
  {BIN}/dagster-bus tail --follow 'shipments.*'      [dim]# events as they come; Ctrl-C ends[/dim]

  {BIN}/dagster sensor stop revenue_sensor -w workspace.yaml      [dim]# pause a group …[/dim]
  {BIN}/dagster-bus lag revenue --watch                           [dim]# … its events wait …[/dim]
  {BIN}/dagster sensor start revenue_sensor -w workspace.yaml     [dim]# … and are worked off[/dim]

  {BIN}/dagster job launch -w workspace.yaml -j replay --config-json \\
    '{REPLAY}'
  {BIN}/dagster-bus replay revenue           [dim]# all events once more, beside it[/dim]

Ctrl-C ends everything.
"""


def on_first_letters(group: str, letter: DeadLetter) -> str:
    """What can be done about a group's dead letters, now that it has some."""
    dlq = f"{BIN}/dagster-bus dlq"
    said = [
        f"[red]{group} has dead letters:[/red] {escape(letter.errors[-1].message)}",
        f"  {dlq} counts {group}",
        f"  {dlq} show {group} {letter.id}",
    ]
    if (patch := patch_for(letter.event.payload)) is not None:
        said.append(f"  {dlq} redrive {group} {letter.id} --patch '{json.dumps(patch)}' --yes")
    return "\n".join(said)


def patch_for(payload: Any) -> list[dict[str, str]] | None:
    """What mends a payload, if it is no line of text."""
    if not isinstance(payload, dict):
        return None
    if payload["currency"] == NO_CURRENCY:
        return [{"op": "replace", "path": "/currency", "value": "EUR"}]
    if "order_id" not in payload:
        order_id = f"A{payload['payment_id'][1:]}"
        return [{"op": "add", "path": "/order_id", "value": order_id}]
    return [{"op": "replace", "path": "/amount", "value": "25.00"}]


def in_one_line(found: Iterable[tuple[str, GroupProgress]]) -> str:
    """How far groups are."""
    return " · ".join(f"{group} {_standing(progress)}" for group, progress in found)


def _standing(progress: GroupProgress) -> str:
    dead = progress.tally.dead_lettered
    letters = f" ({dead:,} dead letter{'s' * (dead > 1)})" if dead else ""
    return f"{progress.tally.settled:,}/{progress.published:,}{letters}"


class Watcher:
    """Looks after the groups, and says what is new."""

    def __init__(self, bus: Bus, groups: Iterable[str], out: Console) -> None:
        self._bus = bus
        self._groups = [*groups]
        self._without_letters = {*self._groups}
        self._out = out
        self._said = ""

    def look(self) -> dict[str, GroupProgress]:
        """How far the groups are; said, if that has changed."""
        found = {name: self._bus.group(name).progress() for name in self._groups}
        line = in_one_line(found.items())
        if line != self._said:
            self._out.print(f"  {line}")
            self._said = line
        return found

    def point_to_letters(self) -> None:
        """Say what can be done about dead letters, once for each group."""
        for group in sorted(self._without_letters):
            for letter in self._bus.dead_letters(group).list(limit=1):
                self._without_letters.discard(group)
                self._out.print(on_first_letters(group, letter))
