"""Windows, in agreement with Dagster's partitions."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.cron import cron
from dagster_bus.core.window import (
    DAILY,
    FIRST_WINDOW,
    FIRST_WINDOW_MS,
    HOUR_MS,
    HOURLY,
    MONTHLY,
    WEEKLY,
    Windows,
)
from dagster_bus.errors import UsageError
from dagster_bus.orchestration.windows import hourly_windows, partitions_of, unusable_windows
from dagster_bus.spec.configs import group_config
from dagster_bus.spec.load import load_spec
from tests.support.project import write_topics

BERLIN = "Europe/Berlin"
ZONES = (BERLIN, "UTC", "America/New_York", "Australia/Sydney", "Asia/Kolkata", "America/St_Johns")
CRONS = (
    *("0 * * * *", "*/15 * * * *", "*/7 * * * *", "0 0 * * *", "0 6 * * *", "30 2 * * *"),
    *("0 2 * * *", "0 */2 * * *", "0 1-3 * * *", "0 0 * * sun", "30 1 * * 7", "0 0 1 * *"),
    *("15 2 * * mon-fri", "0 0 1,15 * *", "0 12 13 * fri", "0 0 31 * *", "5/20 1 * jan,jun *"),
)
RULES = [
    *(HOURLY, DAILY, WEEKLY, MONTHLY),
    *(Windows(str(cron(text)), zone) for text in CRONS for zone in ZONES),
]
TIMES = st.integers(FIRST_WINDOW_MS, FIRST_WINDOW_MS + 6 * 366 * 24 * HOUR_MS)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def changes_of_clocks(zone: str) -> list[int]:
    """Times within an hour of which a zone changes its clocks, in 2026 and 2027."""
    hours = [ms("2026-01-01T00:00:00Z") + hour * HOUR_MS for hour in range(2 * 365 * 24)]
    offsets = [datetime.fromtimestamp(each / 1000, ZoneInfo(zone)).utcoffset() for each in hours]
    return [at for at, one, two in zip(hours, offsets, offsets[1:], strict=False) if one != two]


CHANGES = {zone: changes_of_clocks(zone) for zone in ZONES}


def times_of(windows: Windows) -> st.SearchStrategy[int]:
    """Any time; half of them near a change of the clocks, where there is one."""
    changes = CHANGES[windows.zone]
    near = st.integers(-3 * 24 * HOUR_MS, 3 * 24 * HOUR_MS)
    if not changes:
        return TIMES
    return st.one_of(TIMES, st.builds(int.__add__, st.sampled_from(changes), near))


CASES = st.sampled_from(RULES).flatmap(lambda each: st.tuples(st.just(each), times_of(each)))


@given(CASES)
def test_every_time_lies_in_one_window_and_the_next_begins_where_it_ends(
    case: tuple[Windows, int],
) -> None:
    windows, ts_ms = case
    window = windows.at(ts_ms)
    assert window.start_ms <= ts_ms < window.end_ms
    assert windows.at(window.start_ms) == window == windows.at(window.end_ms - 1)
    assert windows.at(window.end_ms).start_ms == window.end_ms
    assert windows.at(window.end_ms).key != window.key
    assert windows.find(window.key) == window
    assert not set(window.key) & set('/\\:,%*?"<>| ')


@given(CASES)
def test_dagster_means_the_same_span_by_the_same_key(case: tuple[Windows, int]) -> None:
    windows, ts_ms = case
    window, partitions = windows.at(ts_ms), partitions_of(windows)
    span = partitions.time_window_for_partition_key(window.key)
    start_ms, end_ms = (moment.timestamp() * 1000 for moment in (span.start, span.end))
    assert end_ms == window.end_ms
    assert start_ms == window.start_ms or window == windows.at(FIRST_WINDOW_MS)
    assert partitions.get_partition_key_for_timestamp(span.start.timestamp()) == window.key


@given(CASES)
def test_the_window_that_is_open_is_the_last_partition(case: tuple[Windows, int]) -> None:
    windows, ts_ms = case
    short = replace(windows, start_ms=max(ts_ms - 2 * 24 * HOUR_MS, FIRST_WINDOW_MS))
    now = datetime.fromtimestamp(ts_ms / 1000, UTC)
    assert partitions_of(short).get_partition_keys(current_time=now)[-1] == windows.at(ts_ms).key


def test_days_of_a_zone_are_23_and_25_hours_long_when_clocks_change() -> None:
    days = Windows("0 0 * * *", BERLIN)
    spring = days.at(ms("2026-03-29T12:00:00+02:00"))
    autumn = days.at(ms("2026-10-25T12:00:00+01:00"))
    assert (spring.key, (spring.end_ms - spring.start_ms) / HOUR_MS) == ("2026-03-29", 23)
    assert (autumn.key, (autumn.end_ms - autumn.start_ms) / HOUR_MS) == ("2026-10-25", 25)


def test_the_hour_that_comes_twice_is_two_windows_that_sort_by_time() -> None:
    hours = Windows("0 * * * *", BERLIN)
    at = [ms("2026-10-25T00:00:00Z") + n * HOUR_MS for n in range(3)]
    keys = [hours.at(each).key for each in at]
    assert keys == ["2026-10-25T02", "2026-10-25T02+0100", "2026-10-25T03"] == sorted(keys)


def test_every_day_from_now_on_is_there_once() -> None:
    for zone in ZONES:
        for text in ("0 0 * * *", "30 2 * * *"):
            days, day = Windows(text, zone), date(2026, 1, 1)
            window = days.at(ms("2026-01-01T12:00:00Z"))
            for number in range(365):
                assert window.key == str(day + timedelta(days=number)), (zone, text)
                window = days.at(window.end_ms)


def test_keys_say_as_little_as_names_the_window() -> None:
    at = ms("2026-11-18T19:59:00Z")
    named = {"hourly": HOURLY, "daily": DAILY, "weekly": WEEKLY, "monthly": MONTHLY}
    assert {name: windows.at(at).key for name, windows in named.items()} == {
        "hourly": "2026-11-18T19",
        "daily": "2026-11-18",
        "weekly": "2026-11-15",
        "monthly": "2026-11-01",
    }
    assert Windows("0,30 * * * *").at(at).key == "2026-11-18T1930"


def test_what_is_older_than_the_first_window_belongs_to_it() -> None:
    windows = Windows("0 0 * * *", BERLIN, start_ms=ms("2026-06-10T12:00:00Z"))
    first = windows.at(FIRST_WINDOW_MS)
    assert first == windows.at(ms("2026-06-10T13:00:00Z"))
    assert (first.key, first.start_ms) == ("2026-06-10", FIRST_WINDOW_MS)
    assert windows.at(first.end_ms).key == "2026-06-11"
    assert partitions_of(windows).get_first_partition_key() == "2026-06-10"
    assert windows.find("2026-06-09") is None
    assert windows.find("nonsense") is None


def test_windows_begin_with_2025() -> None:
    assert hourly_windows().get_first_partition_key() == f"{FIRST_WINDOW:%Y-%m-%dT%H}"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("*/15 0-23 1-31 * 0-7", "0,15,30,45 * * * *"),
        ("5/20 1 * jan-MAR,12 sat,7", "5,25,45 1 * 1,2,3,12 0,6"),
        ("7-7 1-6/2 * * fri-sat", "7 1,3,5 * * 5,6"),
    ],
)
def test_a_schedule_is_written_in_one_way_with_numbers_only(text: str, same: str) -> None:
    assert str(cron(text)) == same
    assert cron(same) == cron(text)


def test_a_schedule_that_never_comes_is_refused() -> None:
    with pytest.raises(UsageError, match="no such day"):
        cron("0 0 31 2,4 *")


def problems(folder: Path, window: str) -> list[str]:
    loaded = load_spec(
        write_topics(
            folder, **{"launch_timeout: 60s": f"launch_timeout: 60s\n    window: {window}"}
        )
    )
    return [str(problem) for problem in unusable_windows(loaded)]


def test_windows_that_dagster_cannot_bear_are_refused_at_their_place(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, '{cron: "* * * * *"}')
    assert told.startswith("topics.yaml:23:5: groups.order-table.window: that is 9"), told
    assert "windows since 2025-01-01, and Dagster bears 100,000 partitions" in told
    (told,) = problems(tmp_path, '{cron: "0 6 * * *", start: "2999-01-01T00:00:00Z"}')
    assert "would start in the future" in told
    (told,) = problems(tmp_path, '{cron: "0,30 1-3 * * *", timezone: Europe/Berlin}')
    assert "as the clocks of Europe/Berlin change" in told
    (told,) = problems(tmp_path, '{cron: "0 2 * * *", timezone: Africa/Casablanca}')
    assert "as the clocks of Africa/Casablanca change" in told


@pytest.mark.parametrize(
    "window",
    [
        *("hourly", "daily", "weekly", "monthly"),
        '{cron: "0 0 * * *", timezone: America/Havana}',
        '{cron: "*/15 * * * *", timezone: Europe/Berlin, start: 2026-06-01T00:00:00Z}',
        '{cron: "30 2 * * mon", timezone: Australia/Sydney}',
    ],
)
def test_other_windows_are_those_of_their_group(tmp_path: Path, window: str) -> None:
    assert problems(tmp_path, window) == []
    config = group_config(load_spec(tmp_path / "topics.yaml"), "order-table")
    assert config.windows.at(ms("2026-11-18T19:59:00Z")).key.startswith("2026-11-")
