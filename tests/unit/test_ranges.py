"""Ranges behave as the sets of events that they stand for."""

from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.ranges import Place, count, covering, joined, within, without
from dagster_bus.core.topic import OffsetRange

PLACES = st.sets(
    st.builds(Place, st.sampled_from(["orders", "stock"]), st.integers(0, 1), st.integers(1, 30))
)


def places(ranges: tuple[OffsetRange, ...]) -> list[Place]:
    return [
        Place(part.topic, part.partition, offset)
        for part in ranges
        for offset in range(part.first, part.last + 1)
    ]


@given(PLACES)
def test_ranges_cover_their_places_and_no_two_of_them_touch(some: set[Place]) -> None:
    ranges = covering(some)
    assert places(ranges) == sorted(some)
    assert count(ranges) == len(some)
    assert joined(ranges) == ranges


@given(PLACES, PLACES)
def test_taking_out_leaves_the_difference(some: set[Place], taken: set[Place]) -> None:
    left = without(covering(some), covering(taken))
    assert places(left) == sorted(some - taken)


@given(PLACES, PLACES)
def test_joining_gives_the_union(some: set[Place], others: set[Place]) -> None:
    both = joined([*covering(some), *covering(others)])
    assert places(both) == sorted(some | others)


@given(PLACES, PLACES)
def test_what_lies_within_is_the_intersection(some: set[Place], bounds: set[Place]) -> None:
    assert places(within(covering(some), covering(bounds))) == sorted(some & bounds)
