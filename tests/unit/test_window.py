"""Windows, in agreement with Dagster's partitions."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.window import FIRST_WINDOW, HOUR_MS, HOURLY
from dagster_bus.orchestration.windows import hourly_windows

FIRST_MS = int(FIRST_WINDOW.timestamp() * 1000)
TIMES = st.integers(FIRST_MS, FIRST_MS + 10 * 366 * 24 * HOUR_MS)


@given(TIMES)
def test_a_time_lies_in_its_window(ts_ms: int) -> None:
    window = HOURLY.at(ts_ms)
    assert window.start_ms <= ts_ms < window.end_ms
    assert window.end_ms - window.start_ms == HOUR_MS


@given(TIMES)
def test_dagster_means_the_same_span_by_the_same_key(ts_ms: int) -> None:
    window = HOURLY.at(ts_ms)
    span = hourly_windows().time_window_for_partition_key(window.key)
    assert span.start.timestamp() * 1000 == window.start_ms
    assert span.end.timestamp() * 1000 == window.end_ms


def test_the_hour_that_is_still_open_is_a_partition() -> None:
    now = datetime.now(UTC)
    key = HOURLY.at(int(now.timestamp() * 1000)).key
    assert key in hourly_windows().get_partition_keys(current_time=now)
