"""Partitions of keys, against values that a JavaScript engine computed with charCodeAt."""

from collections import Counter

import pytest

from dagster_bus.core.partitioner import Partitioner, partition_of_key

FROM_JAVASCRIPT = [
    ("", 0, 0),
    ("a", 1, 6),
    ("orders", 3, 2),
    ("é", 1, 2),
    ("naïve café", 2, 4),
    ("😀", 3, 2),
    ("日本語", 3, 5),
    ("a" * 10_000, 0, 5),
    ("polygenelubricants", 0, 2),
    ("customer-042", 3, 0),
]


@pytest.mark.parametrize(("key", "of_four", "of_seven"), FROM_JAVASCRIPT)
def test_a_key_goes_where_javascript_sends_it(key: str, of_four: int, of_seven: int) -> None:
    assert partition_of_key(key, 4) == of_four
    assert partition_of_key(key, 7) == of_seven


def test_events_without_a_key_take_turns_over_batches_too() -> None:
    partitioner = Partitioner()
    spread = Counter(
        partition
        for _ in range(100)
        for partition in partitioner.choose([None, "x", None, None], 4)
    )
    spread[partition_of_key("x", 4)] -= 100
    assert spread == {0: 75, 1: 75, 2: 75, 3: 75}


def test_events_with_a_key_leave_the_turns_alone() -> None:
    chosen = Partitioner().choose(["a", None, "a", None, "a"], 4)
    assert chosen[0::2] == [1, 1, 1]
    assert (chosen[3] - chosen[1]) % 4 == 1
