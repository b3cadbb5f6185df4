"""What a report leads to, said a second time and in another way than `core.reporting` does.

A part is what becomes of some events of a delivery: they stay together, in this state, with so many
errors. The referee compares the parts that it expects with those that were written.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from dagster_bus.core.delivery import Delivery, OnExhausted, Outcome, State
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.ranges import Place
from dagster_bus.core.reporting import Failed, Report
from tests.simulation.log import places_of


class Part(NamedTuple):
    places: frozenset[Place]
    state: State
    outcome: Outcome | None = None
    errors: int = 0
    exhausted: bool = False
    doubtful: bool = False
    behind: frozenset[Place] = frozenset()


def part_of(delivery: Delivery) -> Part:
    return Part(
        frozenset(places_of(delivery.ranges)),
        delivery.state,
        delivery.outcome,
        len(delivery.errors),
        delivery.exhausted,
        delivery.doubtful,
        frozenset(places_of(delivery.behind)),
    )


def among(part: Part, places: frozenset[Place]) -> Part:
    """What is known of some events of a part. Those that only waited behind others have no past."""
    if places and places <= part.behind:
        return Part(places, part.state, part.outcome)
    return part._replace(places=places, behind=part.behind & places)


@dataclass(frozen=True)
class Rules:
    """When a group gives up, as a reader of its configuration would tell it."""

    config: GroupConfig

    @property
    def are_plain(self) -> bool:
        """Whether only the number of failures ends the attempts."""
        policy = self.config.retry
        return not (policy.max_age_ms or policy.dead_letter_on or policy.retry_on)

    def ends_attempts(self, part: Part, age_ms: int, error: BaseException) -> bool:
        policy = self.config.retry
        kinds = {kind.__name__ for kind in type(error).__mro__}
        return (
            part.exhausted
            or part.errors + 1 >= policy.max_attempts
            or (policy.max_age_ms is not None and age_ms >= policy.max_age_ms)
            or bool(kinds & set(policy.dead_letter_on))
            or (bool(policy.retry_on) and not kinds & set(policy.retry_on))
        )

    def parts_after(self, old: Delivery, report: Report, now_ms: int) -> Counter[Part]:
        """All parts that a delivery is in after a report on it, what is left of it among them."""
        whole = part_of(old)
        left = whole.places
        parts: list[Part] = []
        for failed in report.failed:
            parts += self._after_failure(whole, failed, now_ms - old.created_ms)
        for refused in report.refused:
            parts += self._refused(whole, refused)
        if report.returned:
            returned = frozenset(places_of(report.returned))
            parts.append(among(whole, returned)._replace(state=State.WAITING, doubtful=True))
        for part in parts:
            left -= part.places
        left -= {*places_of(report.processed), *places_of(report.filtered)}
        left -= {*places_of(report.expired)}
        if left:
            parts.append(among(whole, left))
        return Counter(parts)

    def _after_failure(self, whole: Part, failed: Failed, age_ms: int) -> list[Part]:
        own = among(whole, frozenset(places_of(failed.ranges)))
        tail = frozenset(places_of(failed.behind))
        has_past = not own.places <= whole.behind
        ends = self.ends_attempts(own, age_ms if has_past else 0, failed.error)
        together = own._replace(
            places=own.places | tail,
            behind=own.behind | tail,
            state=State.WAITING,
            errors=own.errors + 1,
            doubtful=False,
        )
        if not ends:
            return [together]
        if self.config.on_exhausted is OnExhausted.BLOCK:
            return [together._replace(state=State.BLOCKED)]
        isolating = self.config.on_exhausted is OnExhausted.ISOLATE
        if isolating and len(own.places) > 1 and not own.exhausted:
            return [together._replace(exhausted=True)]
        return [_dead(among(own, own.places - own.behind)), *_afresh(own.behind | tail)]

    def _refused(self, whole: Part, refused: Failed) -> list[Part]:
        """Also those that had not failed before."""
        places = frozenset(places_of(refused.ranges))
        tried, late = places - whole.behind, places & whole.behind
        dead = [_dead(among(whole, some)) for some in (tried, late) if some]
        return [*dead, *_afresh(frozenset(places_of(refused.behind)))]


def _dead(part: Part) -> Part:
    return part._replace(
        state=State.DONE, outcome=Outcome.DEAD_LETTERED, errors=part.errors + 1, doubtful=False
    )


def _afresh(places: frozenset[Place]) -> list[Part]:
    return [Part(places, State.WAITING)] if places else []
