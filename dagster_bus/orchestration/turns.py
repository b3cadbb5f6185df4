"""Many groups looked after by one tick, within a bounded time: the next one goes on from there."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dagster import RunRequest, SensorEvaluationContext

from dagster_bus.core.bus import Bus
from dagster_bus.errors import BusError
from dagster_bus.orchestration.rounds import MOST_RUNS, look_after
from dagster_bus.orchestration.served import Served

BUDGET_S = 10.0
"""After so long no further group is begun in a tick. Dagster gives a tick up after 60 s."""

MOST_SAID = 5
"""Groups with trouble that a tick names."""


@dataclass(slots=True)
class Turn:
    """What one tick came to."""

    cursor: str = ""
    requests: list[RunRequest] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    """Groups whose dead letters have changed."""
    trouble: list[str] = field(default_factory=list)
    lag: int = 0
    looked: int = 0
    is_whole: bool = False
    """Whether all groups had their turn."""

    @property
    def idle(self) -> str:
        if self.trouble:
            return f"{len(self.trouble)} groups in trouble: " + "; ".join(self.trouble[:MOST_SAID])
        if self.lag:
            return f"{self.lag} events to go in {self.looked} groups, and nothing to start now."
        return f"Nothing new in {self.looked} groups."


class Turns:
    """Goes over the groups, from one that the cursor names on."""

    def __init__(
        self, context: SensorEvaluationContext, bus: Bus, served: Sequence[Served]
    ) -> None:
        self._context = context
        self._bus = bus
        self._served = served
        kept = json.loads(context.cursor or "{}")
        self._begin: str | None = kept.get("next")
        self._shown: dict[str, int] = kept.get("dead_letters", {})

    def next(self) -> Turn:
        turn, shown = Turn(), dict(self._shown)
        following: str | None = None
        began = time.monotonic()
        for served in self._in_turn():
            out_of_time = turn.looked > 0 and time.monotonic() - began > BUDGET_S
            if out_of_time or len(turn.requests) >= MOST_RUNS:
                following = served.group
                break
            self._look_after(served, turn, shown)
        turn.is_whole = following is None
        turn.cursor = json.dumps({"next": following, "dead_letters": shown})
        return turn

    def _look_after(self, served: Served, turn: Turn, shown: dict[str, int]) -> None:
        """One group's trouble is not that of the others."""
        turn.looked += 1
        try:
            most = MOST_RUNS - len(turn.requests)
            found = look_after(self._context, self._bus, served, most)
        except BusError as error:
            turn.trouble.append(f"{served.group}: {error}")
            return
        turn.requests += found.requests
        turn.lag += found.progress.lag
        dead = found.progress.tally.dead_lettered
        if dead != shown.get(served.group, 0):
            turn.letters.append(served.group)
            shown[served.group] = dead

    def _in_turn(self) -> list[Served]:
        names = [each.group for each in self._served]
        at = names.index(self._begin) if self._begin in names else 0
        return [*self._served[at:], *self._served[:at]]
