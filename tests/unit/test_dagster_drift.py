"""What is said when the bus, runs and a table do not tell the same story."""

from dataclasses import replace

from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.topic import OffsetRange
from dagster_bus.orchestration.drift import Told, differences

DONE = Delivery(
    id="d-1",
    group="readers",
    window="2026-11-18T01",
    ranges=(OffsetRange("orders", 0, 1, 5),),
    state=State.DONE,
    outcome=Outcome.PROCESSED,
    due_ms=0,
    created_ms=0,
)
SAID = Told("d-1", DONE.window, "0123456789")


def test_nothing_is_said_while_all_three_agree() -> None:
    assert list(differences([SAID], {"d-1": DONE}, {"d-1"}, [])) == []


def test_a_table_that_lost_a_delivery_is_told() -> None:
    (said,) = differences([SAID], {"d-1": DONE}, set(), [])
    assert "run 01234567 has done delivery d-1, and the table does not have it" in said


def test_another_store_and_an_older_copy_of_it_are_told() -> None:
    (other,) = differences([SAID], {}, {"d-1"}, [])
    assert "the store does not know it" in other
    waiting = replace(DONE, state=State.WAITING, outcome=None)
    (older,) = differences([SAID], {"d-1": waiting}, {"d-1"}, [])
    assert "says that it is waiting" in older


def test_what_the_table_has_and_nobody_settled_is_told() -> None:
    waiting = replace(DONE, state=State.WAITING, outcome=None)
    (said,) = differences([], {}, set(), [waiting])
    assert "nobody has settled it" in said
