"""Which events a delivery takes."""

from dagster_bus.core.planning import after, first_of, frontiers_after, next_spans, next_window
from dagster_bus.core.store import PartitionHead
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import HOUR_MS, HOURLY

NOW = 1_800_000_000_000
NOW -= NOW % HOUR_MS


def head(partition: int, frontier: int, end: int, ts: int | None) -> PartitionHead:
    return PartitionHead(TopicPartition("orders", partition), frontier, end, ts)


def test_nothing_waits_nothing_is_planned() -> None:
    assert next_window([head(0, 5, 5, None), head(1, 1, 1, None)], NOW, HOURLY) is None


def test_the_oldest_event_decides_the_window() -> None:
    window = next_window([head(0, 1, 9, NOW + HOUR_MS), head(1, 1, 9, NOW + 5)], NOW, HOURLY)
    assert window == HOURLY.at(NOW)


def test_a_window_that_has_not_begun_is_left_alone() -> None:
    heads = [head(0, 1, 9, NOW + HOUR_MS)]
    assert next_window(heads, NOW + HOUR_MS - 1, HOURLY) is None
    assert next_window(heads, NOW + HOUR_MS, HOURLY) == HOURLY.at(NOW + HOUR_MS)


def test_ranges_stop_at_the_windows_edge_and_leave_later_partitions_alone() -> None:
    heads = [head(0, 3, 20, NOW), head(1, 1, 20, NOW + HOUR_MS)]
    ends = {heads[0].partition: 11, heads[1].partition: 1}
    assert next_spans(heads, HOURLY.at(NOW), ends) == [OffsetRange("orders", 0, 3, 10)]


def test_a_full_batch_takes_from_the_longest_waiting_first() -> None:
    heads = [head(0, 1, 101, NOW + 2), head(1, 1, 101, NOW + 1)]
    ends = {each.partition: 101 for each in heads}
    assert first_of(next_spans(heads, HOURLY.at(NOW), ends), 130) == (
        OffsetRange("orders", 0, 1, 30),
        OffsetRange("orders", 1, 1, 100),
    )


def test_the_next_batch_begins_with_the_partitions_that_this_one_took_nothing_from() -> None:
    spans = [OffsetRange("orders", number, 1, 10) for number in (2, 0, 1)]
    taken = first_of(spans, 14)
    assert taken == (OffsetRange("orders", 0, 1, 4), OffsetRange("orders", 2, 1, 10))
    left = after(spans, taken)
    assert left == [OffsetRange("orders", 1, 1, 10), OffsetRange("orders", 0, 5, 10)]
    assert after(left, first_of(left, 100)) == []


def test_a_group_stands_behind_the_last_of_all_that_it_took() -> None:
    taken = [OffsetRange("orders", 0, 5, 9), OffsetRange("orders", 1, 1, 1)]
    taken.append(OffsetRange("orders", 0, 1, 4))
    assert frontiers_after(taken) == {("orders", 0): 10, ("orders", 1): 2}
