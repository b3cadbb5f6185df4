"""The circuit breaker of a group, as pure functions from one state to the next.

    CLOSED ──failures in a row──▶ OPEN ──the pause is over──▶ HALF_OPEN ──a success──▶ CLOSED
                                   ▲                              │
                                   └──────────a failure───────────┘

While it is open the group reserves nothing. Half open, it reserves one small batch, the probe, and
what becomes of that decides.
"""

from dataclasses import dataclass
from enum import StrEnum

from dagster_bus.core.retry import BreakerPolicy

PROBE_EVENTS = 10
"""The most events of a probe: few enough to be lost time only, if it fails too."""


class Circuit(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """What is kept of a group's failures: how many in a row, and until when it pauses."""

    failures: int = 0
    paused_until_ms: int = 0

    def circuit(self, policy: BreakerPolicy | None, now_ms: int) -> Circuit:
        if policy is None or self.failures < policy.failures:
            return Circuit.CLOSED
        return Circuit.OPEN if now_ms < self.paused_until_ms else Circuit.HALF_OPEN


def after_failure(breaker: Breaker, policy: BreakerPolicy, now_ms: int) -> Breaker:
    """One more failure. The one that fills the measure begins a pause, and so does each later
    one; what was under way when the pause began does not make it longer."""
    if breaker.circuit(policy, now_ms) is Circuit.OPEN:
        return breaker
    failures = min(breaker.failures + 1, policy.failures)
    if failures < policy.failures:
        return Breaker(failures)
    return Breaker(failures, now_ms + policy.reset_after_ms)


def after_success(breaker: Breaker, policy: BreakerPolicy, now_ms: int) -> Breaker:
    """A success closes the circuit, unless the group pauses: what was under way when the pause
    began is no probe."""
    return breaker if breaker.circuit(policy, now_ms) is Circuit.OPEN else Breaker()
