"""Durations, sizes and counts: read as people write them, and written back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.spec.measures import Count, Duration, Size
from dagster_bus.spec.source import read_source
from dagster_bus.spec.units import (
    count,
    count_in_words,
    duration_ms,
    in_words,
    size_bytes,
    size_in_words,
)

NUMBERS = st.integers(0, 10**15)


@given(NUMBERS)
def test_a_duration_in_words_reads_back(ms: int) -> None:
    assert duration_ms(in_words(ms)) == ms


@given(NUMBERS)
def test_a_size_in_words_reads_back(size: int) -> None:
    assert size_bytes(size_in_words(size)) == size
    assert size_bytes(size) == size


@given(NUMBERS)
def test_a_count_in_words_reads_back_even_through_the_file(number: int) -> None:
    assert count(count_in_words(number)) == number
    assert count(read_source(f"n: {count_in_words(number)}", "x", {}).data["n"]) == number


@given(NUMBERS, NUMBERS)
def test_a_longer_duration_is_more(some: int, other: int) -> None:
    assert (duration_ms(f"{some}s") < duration_ms(f"{other}s")) == (some < other)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0s", 0), ("1ms", 1), ("90 s", 90_000), ("5m", 300_000), ("1h", 3_600_000),
     ("30d", 2_592_000_000), ("1_000ms", 1_000)],
)  # fmt: skip
def test_durations_have_a_unit(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("100", 100), (100, 100), ("100B", 100), ("512KB", 512_000), ("10MB", 10_000_000),
     ("1MiB", 1 << 20), ("2 GiB", 2 << 30), ("1TB", 10**12), ("1tib", 1 << 40), ("10mb", 10**7),
     ("1_000KB", 1_000_000)],
)  # fmt: skip
def test_sizes_have_a_unit_or_are_bytes(text: object, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0, "0s"), (1_500, "1500ms"), (60_000, "1m"), (90_000, "90s"), (86_400_000, "1d")],
)
def test_a_duration_is_written_in_the_largest_unit_that_fits(ms: int, words: str) -> None:
    assert in_words(ms) == words


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0B"), (1, "1B"), (1_000, "1KB"), (1_024, "1KiB"), (1 << 20, "1MiB"), (10**7, "10MB")],
)
def test_a_size_is_written_in_the_largest_unit_that_fits(size: int, words: str) -> None:
    assert size_in_words(size) == words


@pytest.mark.parametrize(
    "value",
    ["", " ", "1", "m", "1 y", "1.5h", "-1s", "1h30m", "1:30", "٣s", "1S", None, 5, 1.5, True, []],
)
def test_what_is_not_a_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_ms(value)


@pytest.mark.parametrize(
    "value", ["", "MB", "1 XB", "1iB", "1.5MB", "-1B", -1, 1.5, True, None, [], {}]
)
def test_what_is_not_a_size_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        size_bytes(value)


@pytest.mark.parametrize("value", ["", "50k", "-1", "1.0", "_1", "٣", 1.0, True, None, [], {}])
def test_what_is_not_a_count_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        count(value)


def test_numbers_of_any_length_are_refused_in_a_short_message() -> None:
    for value in ("9" * 5_000, "9" * 5_000 + "s", 10**5_000):
        for measure in (Duration(), Size(), Count()):
            with pytest.raises(ValueError, match=r"is not a|is too large") as found:
                measure.read(value)
            assert len(str(found.value)) < 250


def test_bounds_are_told_in_the_same_unit() -> None:
    for measure, value, message in (
        (Duration(at_least=1_000), "5ms", "'5ms' is too small (at least 1s)"),
        (Duration(), "40_000d", "'40_000d' is too large (at most 36500d)"),
        (Size(at_most=1 << 20), "2MiB", "'2MiB' is too large (at most 1MiB)"),
        (Count(at_least=1), 0, "0 is too small (at least 1)"),
        (Count(at_most=50_000), 50_001, "50001 is too large (at most 50_000)"),
    ):
        with pytest.raises(ValueError, match="is too") as found:
            measure.read(value)
        assert str(found.value) == message
