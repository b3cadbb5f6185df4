"""Retry policies, and the decision they lead to after a failure. Pure: the dice are handed in."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Jitter = Literal["none", "full", "equal"]


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a group whose work fails again and again is to pause, and for how long."""

    failures: int = 5
    reset_after_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often work is tried, and how long it waits in between."""

    max_attempts: int = 4
    base_delay_ms: int = 1_000
    multiplier: float = 2.0
    max_delay_ms: int = 30_000
    jitter: Jitter = "full"
    max_age_ms: int | None = None
    """No further attempt once the first one was this long ago."""
    retry_on: tuple[str, ...] = ()
    """Exceptions worth another attempt, by name or pattern; all of them if empty."""
    dead_letter_on: tuple[str, ...] = ()
    """Exceptions that no further attempt would help."""
    breaker: BreakerPolicy | None = None


@dataclass(frozen=True, slots=True)
class RetryAfter:
    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    pass


Decision = RetryAfter | GiveUp


def decide(
    policy: RetryPolicy,
    failed_attempt: int,
    dice: float,
    *,
    error_names: Iterable[str] = (),
    age_ms: int = 0,
) -> Decision:
    """What follows when attempt number `failed_attempt` has failed; `dice` lies in [0, 1).

    `error_names` are the names of the exception and of its bases, short and in full; `age_ms` is
    how long ago the first attempt began."""
    if failed_attempt >= policy.max_attempts:
        return GiveUp()
    if policy.max_age_ms is not None and age_ms >= policy.max_age_ms:
        return GiveUp()
    if not is_worth_retrying(policy, error_names):
        return GiveUp()
    longest_ms = longest_delay_ms(policy, failed_attempt + 1)
    return RetryAfter(_with_jitter(policy.jitter, longest_ms, dice))


def is_worth_retrying(policy: RetryPolicy, error_names: Iterable[str]) -> bool:
    """Whether the policy's rules allow another attempt after an error of these names. What is said
    of an exception that another attempt does not help goes before what is said of one that it does.
    Of an error without a name nothing is known, and it is tried again."""
    names = tuple(error_names)
    if not names:
        return True
    if _any_matches(policy.dead_letter_on, names):
        return False
    return not policy.retry_on or _any_matches(policy.retry_on, names)


def names_of(error: BaseException) -> tuple[str, ...]:
    """By what names rules may call an exception: its class and the classes it is a kind of, each
    short and with its module."""
    kinds = [kind for kind in type(error).__mro__ if kind is not object]
    return tuple(
        name for kind in kinds for name in (kind.__name__, f"{kind.__module__}.{kind.__name__}")
    )


def longest_delay_ms(policy: RetryPolicy, attempt: int) -> int:
    """The wait before an attempt, without jitter: 0, base, base·multiplier, … up to the maximum."""
    if attempt <= 1:
        return 0
    try:
        delay = policy.base_delay_ms * policy.multiplier ** (attempt - 2)
    except OverflowError:
        return policy.max_delay_ms
    return int(min(delay, policy.max_delay_ms))


def _with_jitter(jitter: Jitter, longest_ms: int, dice: float) -> int:
    if jitter == "full":
        return int(longest_ms * dice)
    if jitter == "equal":
        return int(longest_ms / 2 + longest_ms / 2 * dice)
    return longest_ms


def _any_matches(patterns: Iterable[str], names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
