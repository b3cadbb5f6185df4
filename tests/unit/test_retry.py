"""Retry decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.retry import (
    GiveUp,
    RetryAfter,
    RetryPolicy,
    decide,
    longest_delay_ms,
    names_of,
)

DICE = st.floats(min_value=0, max_value=1, exclude_max=True)


def test_waits_grow_by_the_multiplier_up_to_the_maximum() -> None:
    policy = RetryPolicy(max_attempts=9, base_delay_ms=1_000, multiplier=2, max_delay_ms=30_000)
    waits = [longest_delay_ms(policy, attempt) for attempt in range(1, 9)]
    assert waits == [0, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def test_without_jitter_the_wait_is_exact() -> None:
    policy = RetryPolicy(base_delay_ms=500, multiplier=3, jitter="none")
    assert decide(policy, 1, dice=0.1) == RetryAfter(500)
    assert decide(policy, 2, dice=0.9) == RetryAfter(1_500)


def test_the_last_attempt_is_the_last() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert isinstance(decide(policy, 2, dice=0.5), RetryAfter)
    assert decide(policy, 3, dice=0.5) == GiveUp()


@given(st.integers(1, 5_000), DICE)
def test_full_jitter_stays_within_the_wait(attempt: int, dice: float) -> None:
    policy = RetryPolicy(max_attempts=10_000, max_delay_ms=60_000, multiplier=10)
    decision = decide(policy, attempt, dice)
    assert isinstance(decision, RetryAfter)
    assert 0 <= decision.delay_ms <= longest_delay_ms(policy, attempt + 1) <= 60_000


@given(st.integers(1, 5_000), DICE)
def test_equal_jitter_waits_at_least_half(attempt: int, dice: float) -> None:
    policy = RetryPolicy(max_attempts=10_000, max_delay_ms=60_000, jitter="equal")
    decision = decide(policy, attempt, dice)
    assert isinstance(decision, RetryAfter)
    longest = longest_delay_ms(policy, attempt + 1)
    assert longest // 2 <= decision.delay_ms <= longest


def test_no_further_attempt_past_the_maximum_age() -> None:
    policy = RetryPolicy(max_attempts=100, max_age_ms=60_000)
    assert isinstance(decide(policy, 2, dice=0.5, age_ms=59_999), RetryAfter)
    assert decide(policy, 2, dice=0.5, age_ms=60_000) == GiveUp()


class OutOfReach(ConnectionError):
    pass


@pytest.mark.parametrize(
    ("retry_on", "dead_letter_on", "is_tried"),
    [
        ((), (), True),
        (("OutOfReach",), (), True),
        (("ConnectionError",), (), True),
        (("builtins.OSError",), (), True),
        (("*Reach",), (), True),
        (("*.test_retry.*",), (), True),
        (("ValueError", "Key*"), (), False),
        ((), ("OutOfReach",), False),
        ((), ("ValueError",), True),
        (("OSError",), ("OutOf*",), False),
    ],
)
def test_rules_by_the_name_of_an_exception_or_of_what_it_is_a_kind_of(
    retry_on: tuple[str, ...], dead_letter_on: tuple[str, ...], is_tried: bool
) -> None:
    policy = RetryPolicy(retry_on=retry_on, dead_letter_on=dead_letter_on)
    decision = decide(policy, 1, dice=0.5, error_names=names_of(OutOfReach("no route")))
    assert isinstance(decision, RetryAfter) is is_tried
