"""How the events of one group ended, kept apart from the store."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.ranges import Place
from dagster_bus.core.store import LetterState, Tally
from tests.simulation.log import Log, places_of


@dataclass
class Letter:
    """A dead letter that should be there."""

    place: Place
    errors: int
    died_ms: int
    state: LetterState = LetterState.DEAD


@dataclass
class Account:
    """Ends are added when a commit was seen that brings them about; a dead letter that is sent
    back takes its own end away again."""

    config: GroupConfig
    log: Log
    tally: Tally = field(default_factory=Tally)
    ended: dict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))
    ever_ended: set[Place] = field(default_factory=set)
    letters: list[Letter] = field(default_factory=list)

    def end(self, place: Place, how: str) -> None:
        self.ended[place].append(how)
        self.ever_ended.add(place)
        self.tally += Tally(**{how: 1})

    def bury(self, delivery: Delivery) -> None:
        """All events of a delivery die, but for those that the group does not want and those that
        had expired. Whoever sent letters back wants them."""
        for place in places_of(delivery.ranges):
            how = "dead_lettered" if delivery.redriven else self.fate(place, delivery.due_ms)
            self.end(place, how)
            if how == "dead_lettered":
                self.letters.append(Letter(place, len(delivery.errors), delivery.due_ms))

    def fate(self, place: Place, now_ms: int) -> str:
        event = self.log.events[place]
        wanted = self.config.filter
        if wanted and not wanted.matches(event.attributes, event.key):
            return "filtered"
        return "expired" if event.is_expired(now_ms) else "dead_lettered"

    def send_back(self, place: Place, died_ms: int) -> None:
        letter = next(
            each
            for each in self.letters
            if (each.place, each.died_ms, each.state) == (place, died_ms, LetterState.DEAD)
        )
        letter.state = LetterState.REDRIVEN
        self.ended[place].remove("dead_lettered")
        self.tally += Tally(dead_lettered=-1)

    def purge(self, before_ms: int, needed: set[Place]) -> int:
        """Let letters go that died before a time; returns how many."""
        kept = [
            each
            for each in self.letters
            if each.died_ms >= before_ms
            or (each.state is LetterState.REDRIVEN and each.place in needed)
        ]
        purged = len(self.letters) - len(kept)
        self.letters = kept
        return purged

    def dead(self) -> Counter[tuple[Place, int, int]]:
        """The letters that are dead now: where, with how many errors, and since when."""
        return Counter(
            (each.place, each.errors, each.died_ms)
            for each in self.letters
            if each.state is LetterState.DEAD
        )
