"""`retry_policies` in the file."""

from typing import Annotated, Literal

from pydantic import Field

from dagster_bus.spec.base import Spec
from dagster_bus.spec.measures import Count, Duration
from dagster_bus.spec.words import ExceptionPattern


class CircuitBreakerSpec(Spec):
    """A pause for a group whose work fails again and again."""

    failures: Annotated[int, Count(1, 10_000)] = Field(
        5, description="Failures in a row that make the group pause."
    )
    reset_after: Annotated[int, Duration(1)] = Field(
        60_000, description="The pause. One attempt then decides whether the group goes on."
    )


class RetryPolicySpec(Spec):
    """How often a failed batch is tried, and how long it waits in between."""

    max_attempts: Annotated[int, Count(1, 10_000)] = Field(
        4, description="Attempts in all, the first included."
    )
    base_delay: Annotated[int, Duration()] = Field(
        1_000, description="The wait before the second attempt."
    )
    multiplier: float = Field(
        2.0,
        ge=1,
        le=1_000,
        allow_inf_nan=False,
        description="How much longer each further wait is.",
    )
    max_delay: Annotated[int, Duration()] = Field(
        30_000, description="No wait is longer; not less than `base_delay`."
    )
    jitter: Literal["none", "full", "equal"] = Field(
        "full",
        description="full: wait a random part of the delay. equal: half of it, and a random part "
        "of the other half. none: all of it.",
    )
    max_age: Annotated[int, Duration(1)] | None = Field(
        None, description="No further attempt once the first one was this long ago."
    )
    retry_on: list[ExceptionPattern] = Field(
        default_factory=list,
        description="Exceptions worth another attempt, by name, `*` for any part of it; all of "
        "them if not said.",
    )
    dead_letter_on: list[ExceptionPattern] = Field(
        default_factory=list, description="Exceptions that no further attempt would help."
    )
    circuit_breaker: CircuitBreakerSpec | None = Field(
        None, description="A pause after many failures."
    )
