"""The circuit breaker of a group."""

from dagster_bus.core.breaker import Breaker, Circuit, after_failure, after_success
from dagster_bus.core.retry import BreakerPolicy

POLICY = BreakerPolicy(failures=3, reset_after_ms=1_000)


def failed(times: int, now_ms: int = 0) -> Breaker:
    breaker = Breaker()
    for _ in range(times):
        breaker = after_failure(breaker, POLICY, now_ms)
    return breaker


def test_so_many_failures_in_a_row_open_the_circuit_for_a_while() -> None:
    assert failed(2).circuit(POLICY, 0) is Circuit.CLOSED
    opened = failed(3, now_ms=500)
    assert opened.circuit(POLICY, 500) is Circuit.OPEN
    assert opened.circuit(POLICY, 1_499) is Circuit.OPEN
    assert opened.circuit(POLICY, 1_500) is Circuit.HALF_OPEN


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = after_success(failed(2), POLICY, 0)
    assert after_failure(breaker, POLICY, 0).circuit(POLICY, 0) is Circuit.CLOSED


def test_the_probe_decides() -> None:
    half_open = failed(3)
    assert after_success(half_open, POLICY, 1_000).circuit(POLICY, 1_000) is Circuit.CLOSED
    again = after_failure(half_open, POLICY, 1_000)
    assert again.circuit(POLICY, 1_999) is Circuit.OPEN
    assert again.circuit(POLICY, 2_000) is Circuit.HALF_OPEN


def test_what_was_under_way_when_the_pause_began_changes_nothing() -> None:
    opened = failed(3)
    assert after_failure(opened, POLICY, 999) == opened
    assert after_success(opened, POLICY, 999) == opened


def test_without_a_policy_the_circuit_is_closed() -> None:
    assert failed(3).circuit(None, 0) is Circuit.CLOSED
