"""Halving finds what fails alone, in few trials."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.isolating import isolate
from dagster_bus.core.ranges import Ranges, count, halves, joined
from dagster_bus.core.topic import OffsetRange


def batch_of(size: int) -> Ranges:
    """Events of two partitions."""
    first = OffsetRange("orders", 0, 11, 10 + (size + 1) // 2)
    second = OffsetRange("orders", 1, 501, 500 + size // 2)
    return (first, second) if size > 1 else (first,)


def offsets(ranges: Ranges) -> set[tuple[int, int]]:
    return {(r.partition, n) for r in ranges for n in range(r.first, r.last + 1)}


class Trials:
    """A pipeline that fails if one of the bad events is among its own, and names it."""

    def __init__(self, bad: set[tuple[int, int]]) -> None:
        self.bad = bad
        self.seen: list[Ranges] = []

    def __call__(self, ranges: Ranges) -> ValueError | None:
        self.seen.append(ranges)
        wrong = self.bad & offsets(ranges)
        return ValueError(str(min(wrong))) if wrong else None


@given(st.integers(1, 200), st.data())
def test_just_the_events_that_fail_alone_are_found_each_with_its_own_error(
    size: int, data: st.DataObject
) -> None:
    batch = batch_of(size)
    bad = data.draw(st.sets(st.sampled_from(sorted(offsets(batch))), min_size=1, max_size=6))
    trials = Trials(bad)
    found = isolate(batch, ValueError("the whole"), trials)
    assert {event for each in found.poison for event in offsets(each.ranges)} == bad
    for each in found.poison:
        assert count(each.ranges) == 1
        (event,) = offsets(each.ranges)
        assert str(each.error) == str(event)
    assert found.trials == len(trials.seen)


def test_three_among_a_hundred_thousand_are_found_in_few_trials() -> None:
    batch = batch_of(100_000)
    trials = Trials({(0, 11), (0, 31_000), (1, 44_444)})
    found = isolate(batch, ValueError(), trials)
    assert len(found.poison) == 3
    assert found.trials <= 2 * 3 * log2(100_000)


def test_what_fails_only_together_is_nobodys_fault() -> None:
    batch = batch_of(8)
    found = isolate(batch, ValueError(), lambda ranges: None)
    assert found.poison == []


def test_a_single_event_is_not_condemned_for_what_the_batch_said() -> None:
    calm = isolate(batch_of(1), ValueError("the batch"), lambda _: None)
    assert calm.poison == []
    (own,) = isolate(batch_of(1), ValueError("the batch"), lambda _: KeyError("own")).poison
    assert isinstance(own.error, KeyError)


@pytest.mark.parametrize("most", [5, 40])
def test_when_trials_run_out_what_is_known_to_fail_is_given_up_together(most: int) -> None:
    batch = batch_of(1_000)
    trials = Trials(offsets(batch))
    found = isolate(batch, ValueError(), trials, most_trials=most)
    assert found.trials <= most + 1
    assert joined(part for each in found.poison for part in each.ranges) == batch


@given(st.integers(2, 50))
def test_halves_are_the_whole(size: int) -> None:
    first, second = halves(batch_of(size))
    assert joined([*first, *second]) == batch_of(size)
    assert count(second) - count(first) in (0, 1)
