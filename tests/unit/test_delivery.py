"""The life of a delivery, state by state."""

import pytest

from dagster_bus.core import delivery as life
from dagster_bus.core.delivery import Delivery, OnExhausted, Outcome, State
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.retry import GiveUp, RetryAfter
from dagster_bus.core.topic import OffsetRange
from dagster_bus.errors import LeaseLost, ReservationLost

RANGES = (OffsetRange("orders", 0, 1, 10), OffsetRange("orders", 1, 5, 5))


def opened(now_ms: int = 0) -> Delivery:
    return life.open_delivery(
        id="d", group="g", window="w", ranges=RANGES, now_ms=now_ms, launch_timeout_ms=100
    )


def leased(now_ms: int = 0) -> Delivery:
    return life.lease(opened(), reservation=1, worker="run", now_ms=now_ms, lease_ms=50)


def error(attempt: int = 1) -> AttemptError:
    return AttemptError(attempt, "ValueError", "bad", "", "run", 0)


def test_a_new_delivery_is_reserved_for_its_first_attempt() -> None:
    delivery = opened(now_ms=7)
    assert (delivery.state, delivery.attempt, delivery.reservation) == (State.RESERVED, 1, 1)
    assert delivery.size == 11
    assert not delivery.is_due(106)
    assert delivery.is_due(107)


def test_a_lease_gets_a_new_token_and_an_end() -> None:
    delivery = leased(now_ms=10)
    assert (delivery.state, delivery.token, delivery.due_ms) == (State.RUNNING, 1, 60)
    assert delivery.worker == "run"


def test_a_reservation_becomes_a_lease_once() -> None:
    with pytest.raises(ReservationLost):
        life.lease(leased(), reservation=1, worker="other", now_ms=0, lease_ms=50)


def test_an_old_reservation_no_longer_counts() -> None:
    again = life.reserve_again(
        life.release_reservation(opened(), now_ms=100), now_ms=100, launch_timeout_ms=100
    )
    with pytest.raises(ReservationLost, match="reservation 1 no longer counts"):
        life.lease(again, reservation=1, worker="late", now_ms=101, lease_ms=50)
    assert life.lease(again, reservation=2, worker="next", now_ms=101, lease_ms=50).token == 1


def test_a_lost_launch_counts_as_no_attempt() -> None:
    waiting = life.release_reservation(opened(), now_ms=100)
    again = life.reserve_again(waiting, now_ms=100, launch_timeout_ms=100)
    assert (again.attempt, again.reservation, again.errors) == (1, 2, ())


def test_a_late_worker_may_still_lease_while_nobody_else_was_asked() -> None:
    late = life.lease(opened(), reservation=1, worker="run", now_ms=5_000, lease_ms=50)
    assert late.state is State.RUNNING


def test_a_heartbeat_moves_the_end_of_the_lease() -> None:
    assert life.renew(leased(), token=1, now_ms=40, lease_ms=50).due_ms == 90


@pytest.mark.parametrize("now_ms", [50, 51, 10_000])
def test_a_holder_whose_lease_has_run_out_is_refused(now_ms: int) -> None:
    with pytest.raises(LeaseLost, match="ran out"):
        life.settle(leased(), token=1, now_ms=now_ms)
    with pytest.raises(LeaseLost):
        life.renew(leased(), token=1, now_ms=now_ms, lease_ms=50)
    with pytest.raises(LeaseLost):
        life.fail(leased(), token=1, now_ms=now_ms, error=error(), decision=GiveUp())


def test_an_old_token_is_refused() -> None:
    taken = life.take_back(leased(), now_ms=50, error=error(), decision=RetryAfter(0))
    again = life.reserve_again(taken, now_ms=50, launch_timeout_ms=100)
    held = life.lease(again, reservation=2, worker="next", now_ms=50, lease_ms=50)
    assert (held.token, held.attempt) == (2, 2)
    with pytest.raises(LeaseLost, match="handed on"):
        life.settle(held, token=1, now_ms=51)


def test_settled_is_done_and_stays_so() -> None:
    done = life.settle(leased(), token=1, now_ms=49)
    assert (done.state, done.outcome) == (State.DONE, Outcome.PROCESSED)
    assert not done.is_due(10**12)
    with pytest.raises(LeaseLost):
        life.settle(done, token=1, now_ms=49)


def test_a_failure_waits_with_its_error() -> None:
    failed = life.fail(leased(), token=1, now_ms=20, error=error(), decision=RetryAfter(500))
    assert (failed.state, failed.due_ms, failed.errors) == (State.WAITING, 520, (error(),))


def test_the_last_failure_ends_in_the_dead_letters_with_every_error() -> None:
    failed = life.fail(leased(), token=1, now_ms=20, error=error(1), decision=RetryAfter(0))
    again = life.reserve_again(failed, now_ms=20, launch_timeout_ms=100)
    held = life.lease(again, reservation=2, worker="run", now_ms=20, lease_ms=50)
    dead = life.fail(held, token=2, now_ms=30, error=error(2), decision=GiveUp())
    assert (dead.state, dead.outcome) == (State.DONE, Outcome.DEAD_LETTERED)
    assert [each.attempt for each in dead.errors] == [1, 2]


def test_a_holder_may_give_up_and_nobody_else() -> None:
    dead = life.give_up(leased(), token=1, now_ms=1)
    assert (dead.state, dead.outcome) == (State.DONE, Outcome.DEAD_LETTERED)
    with pytest.raises(LeaseLost):
        life.give_up(leased(), token=1, now_ms=50)
    with pytest.raises(LeaseLost):
        life.give_up(leased(), token=2, now_ms=1)


def test_who_gives_up_the_work_of_a_group_that_is_to_block_stops_the_group() -> None:
    blocked = life.give_up(leased(), token=1, now_ms=1, on_exhausted=OnExhausted.BLOCK)
    assert (blocked.state, blocked.outcome, blocked.worker) == (State.BLOCKED, None, None)
    isolating = life.give_up(leased(), token=1, now_ms=1, on_exhausted=OnExhausted.ISOLATE)
    assert isolating.outcome is Outcome.DEAD_LETTERED
    with pytest.raises(LeaseLost):
        life.give_up(leased(), token=2, now_ms=1, on_exhausted=OnExhausted.BLOCK)


def test_every_step_raises_the_version_by_one() -> None:
    delivery = opened()
    assert delivery.version == 1
    held = life.lease(delivery, reservation=1, worker="run", now_ms=0, lease_ms=50)
    assert held.version == 2
    assert life.settle(held, token=1, now_ms=1).version == 3
