"""Topic names, patterns and filters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.topic import EventFilter, matching, require_pattern, require_topic_name
from dagster_bus.errors import InvalidTopicName

SEGMENT = st.from_regex(r"[a-z0-9-]{1,3}", fullmatch=True)
NAME = st.lists(SEGMENT, min_size=1, max_size=5)
PATTERN = st.lists(st.one_of(SEGMENT, st.just("*"), st.just("**")), min_size=1, max_size=5)


@pytest.mark.parametrize("name", ["orders", "orders.created", "a-1.b2.c", "0", "busy.lane"])
def test_names_of_segments_joined_by_dots_are_accepted(name: str) -> None:
    require_topic_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "a.", ".a", "a..b", "Orders", "orders created", "orders_created", "a.*", "é", "a\n"],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="not a topic name"):
        require_topic_name(name)


@pytest.mark.parametrize("name", ["bus", "bus.x", "system.metrics"])
def test_names_of_the_bus_itself_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="reserved"):
        require_topic_name(name)


@pytest.mark.parametrize("pattern", ["", "a.*b", "***", "a..b", "A.*"])
def test_broken_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidTopicName, match="not a topic pattern"):
        require_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("orders.*", "orders.created", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.created", False),
        ("orders.**", "orders", True),
        ("orders.**", "orders.eu.created", True),
        ("**.created", "created", True),
        ("**.created", "orders.eu.created", True),
        ("**.created", "orders.recreated", False),
        ("a.**.b", "a.b", True),
        ("a.**.b", "a.x.y.b", True),
        ("a.**.b", "ab", False),
        ("*", "anything.at.all", True),
    ],
)
def test_a_star_is_one_segment_and_two_are_any_number(
    pattern: str, name: str, expected: bool
) -> None:
    assert bool(matching(pattern, [name])) is expected


@given(PATTERN, NAME)
def test_patterns_agree_with_their_definition(pattern: list[str], name: list[str]) -> None:
    expected = pattern == ["*"] or _matches(pattern, name)
    assert bool(matching(".".join(pattern), [".".join(name)])) is expected


def _matches(pattern: list[str], name: list[str]) -> bool:
    """The definition, word for word."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_matches(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", name[0]) and _matches(pattern[1:], name[1:])


def test_a_filter_compares_values_with_their_types() -> None:
    wanted = EventFilter(equals={"n": 1})
    assert wanted.matches({"n": 1})
    assert not wanted.matches({"n": True})
    assert not wanted.matches({"n": "1"})
    assert not wanted.matches({"n": 1.0})
    assert not wanted.matches({})


def test_a_filter_can_ask_that_an_attribute_exists() -> None:
    wanted = EventFilter(exists=("channel",))
    assert wanted.matches({"channel": ""})
    assert not wanted.matches({"other": "x"})


def test_an_empty_filter_lets_everything_pass_and_is_false() -> None:
    assert EventFilter().matches({})
    assert not EventFilter()
