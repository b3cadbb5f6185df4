"""Events: their ids, and what is said of a batch."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.event import uuid7, uuid7s
from tests.support.builders import new_batch


@given(st.integers(0, (1 << 48) - 1))
def test_ids_are_version_7_uuids_that_carry_their_time(now_ms: int) -> None:
    parsed = uuid.UUID(uuid7(now_ms))
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 80 == now_ms


def test_ids_of_one_moment_differ_and_ascend() -> None:
    ids = uuid7s(1, 10_000)
    assert sorted(set(ids)) == ids
    assert all(uuid.UUID(id).version == 7 for id in ids[::999])
    assert len({id for _ in range(1_000) for id in uuid7s(1, 3)}) == 3_000


def test_some_events_of_a_batch_are_taken_with_all_their_columns() -> None:
    batch = new_batch("orders", [0, 1, 2], ["1", "2", "3"], keys=["a", "b", "c"], times=[7, 8, 9])
    taken = batch.take([2, 0])
    assert (taken.partitions, taken.payloads, taken.keys, taken.times) == (
        [2, 0], ["3", "1"], ["c", "a"], [9, 7],
    )  # fmt: skip
    assert (taken.topic, taken.length) == ("orders", 2)
    assert new_batch("orders", [0, 0]).take([1]).times is None
