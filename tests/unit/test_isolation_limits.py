"""When looking for bad events is given up."""

from dagster_bus.core import delivery as life
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.retry import GiveUp
from dagster_bus.core.topic import OffsetRange
from dagster_bus.spark.isolation import MOST_LOOKS, is_lost_executor, is_worth_isolating


def taken(delivery: Delivery) -> Delivery:
    again = life.reserve_again(delivery, now_ms=0, launch_timeout_ms=1)
    return life.lease(again, reservation=again.reservation, worker="run", now_ms=0, lease_ms=9)


def exhausted() -> Delivery:
    opened = life.open_delivery(
        id="d",
        group="g",
        window="w",
        ranges=(OffsetRange("orders", 0, 1, 9),),
        now_ms=0,
        launch_timeout_ms=9,
    )
    leased = life.lease(opened, reservation=1, worker="run", now_ms=0, lease_ms=9)
    error = AttemptError(1, "WorkerGone", "gone", "", "run", 0)
    return taken(life.take_back(leased, now_ms=0, error=error, decision=GiveUp()))


def test_a_batch_over_which_workers_vanish_again_and_again_is_given_up() -> None:
    held = exhausted()
    for _ in range(MOST_LOOKS - 1):
        assert is_worth_isolating(held)
        held = taken(life.take_back(held, now_ms=0, error=None, decision=GiveUp()))
    assert is_worth_isolating(held)
    back = life.hand_back(held, token=held.token, now_ms=0, looked=True)
    assert not is_worth_isolating(taken(back))
    assert is_worth_isolating(taken(life.resume(back, now_ms=0))), "what starts afresh does"


def test_runs_that_never_looked_do_not_count() -> None:
    """They were told to stop, had no Spark, or never came."""
    held = exhausted()
    for _ in range(MOST_LOOKS + 1):
        held = taken(life.hand_back(held, token=held.token, now_ms=0, wait_ms=1))
        back = life.hand_back(held, token=held.token, now_ms=0)
        lost = life.reserve_again(back, now_ms=0, launch_timeout_ms=1)
        held = taken(life.release_reservation(lost, now_ms=1))
    assert is_worth_isolating(held)


def test_the_death_of_an_executor_is_told_from_an_error_of_the_code() -> None:
    assert is_lost_executor(OSError("Python worker exited unexpectedly (crashed)"))
    assert is_lost_executor(OSError("ExecutorLostFailure (executor 1 exited caused by one of …"))
    assert not is_lost_executor(ValueError("cannot do 3"))
