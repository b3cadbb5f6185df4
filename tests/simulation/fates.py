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
    outcome: Outcome | None
    errors: int
    exhausted: bool


def part_of(delivery: Delivery) -> Part:
    return Part(
        frozenset(places_of(delivery.ranges)),
        delivery.state,
        delivery.outcome,
        len(delivery.errors),
        delivery.exhausted,
    )


@dataclass(frozen=True)
class Rules:
    """When a group gives up, as a reader of its configuration would tell it."""

    config: GroupConfig

    def ends_attempts(self, old: Delivery, error: BaseException, now_ms: int) -> bool:
        policy = self.config.retry
        kinds = {kind.__name__ for kind in type(error).__mro__}
        return (
            old.exhausted
            or len(old.errors) + 1 >= policy.max_attempts
            or (policy.max_age_ms is not None and now_ms - old.created_ms >= policy.max_age_ms)
            or bool(kinds & set(policy.dead_letter_on))
            or (bool(policy.retry_on) and not kinds & set(policy.retry_on))
        )

    def parts_after(self, old: Delivery, report: Report, now_ms: int) -> Counter[Part]:
        """All parts that a delivery is in after a report on it, what is left of it among them."""
        left = frozenset(places_of(old.ranges))
        parts: list[Part] = []
        for failed in report.failed:
            parts += self._after_failure(old, failed, now_ms)
        for refused in report.refused:
            parts += self._buried(old, refused)
        if report.returned:
            returned = frozenset(places_of(report.returned))
            parts.append(Part(returned, State.WAITING, None, len(old.errors), old.exhausted))
        for part in parts:
            left -= part.places
        left -= {*places_of(report.processed), *places_of(report.filtered)}
        left -= {*places_of(report.expired)}
        if left:
            parts.append(Part(left, State.RUNNING, None, len(old.errors), old.exhausted))
        return Counter(parts)

    def _after_failure(self, old: Delivery, failed: Failed, now_ms: int) -> list[Part]:
        own = frozenset(places_of(failed.ranges))
        behind = frozenset(places_of(failed.behind))
        errors = len(old.errors) + 1
        if not self.ends_attempts(old, failed.error, now_ms):
            return [Part(own | behind, State.WAITING, None, errors, False)]
        if self.config.on_exhausted is OnExhausted.BLOCK:
            return [Part(own | behind, State.BLOCKED, None, errors, old.exhausted)]
        isolating = self.config.on_exhausted is OnExhausted.ISOLATE
        if isolating and len(own) > 1 and not old.exhausted:
            return [Part(own | behind, State.WAITING, None, errors, True)]
        return self._buried(old, failed)

    def _buried(self, old: Delivery, failed: Failed) -> list[Part]:
        own = frozenset(places_of(failed.ranges))
        errors = len(old.errors) + 1
        parts = [Part(own, State.DONE, Outcome.DEAD_LETTERED, errors, old.exhausted)]
        if failed.behind:
            behind = frozenset(places_of(failed.behind))
            parts.append(Part(behind, State.WAITING, None, 0, False))
        return parts
