"""Retry policies, and the decision they lead to after a failure. Pure: the dice are handed in."""

from dataclasses import dataclass
from typing import Literal

Jitter = Literal["none", "full"]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often work is tried, and how long it waits in between."""

    max_attempts: int = 4
    base_delay_ms: int = 1_000
    multiplier: float = 2.0
    max_delay_ms: int = 30_000
    jitter: Jitter = "full"


@dataclass(frozen=True, slots=True)
class RetryAfter:
    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    pass


Decision = RetryAfter | GiveUp


def decide(policy: RetryPolicy, failed_attempt: int, dice: float) -> Decision:
    """What follows when attempt number `failed_attempt` has failed; `dice` lies in [0, 1)."""
    if failed_attempt >= policy.max_attempts:
        return GiveUp()
    delay_ms = longest_delay_ms(policy, failed_attempt + 1)
    return RetryAfter(int(delay_ms * dice) if policy.jitter == "full" else delay_ms)


def longest_delay_ms(policy: RetryPolicy, attempt: int) -> int:
    """The wait before an attempt, without jitter: 0, base, base·multiplier, … up to the maximum."""
    if attempt <= 1:
        return 0
    try:
        delay = policy.base_delay_ms * policy.multiplier ** (attempt - 2)
    except OverflowError:
        return policy.max_delay_ms
    return int(min(delay, policy.max_delay_ms))
