"""Windows as partitions: the same spans under the same names, and not more than Dagster bears."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from dagster import TimeWindowPartitionsDefinition

from dagster_bus.core.clock import system_clock
from dagster_bus.core.window import HOURLY, Window, Windows
from dagster_bus.errors import Problem
from dagster_bus.spec.configs import windows_of
from dagster_bus.spec.loaded import LoadedSpec

MOST_PARTITIONS = 100_000
"""Of one asset; with more of them Dagster's pages and its daemon become slow."""

DAY_MS = 24 * 3_600_000
YEARS_AHEAD = 2
"""For so long the clocks of a zone are looked at."""


def hourly_windows() -> TimeWindowPartitionsDefinition:
    """The partitions of every table that is not given other windows."""
    return partitions_of(HOURLY)


@lru_cache(maxsize=256)
def partitions_of(windows: Windows) -> TimeWindowPartitionsDefinition:
    """The window that is still open is among them."""
    return TimeWindowPartitionsDefinition(
        start=windows.first,
        cron_schedule=windows.cron,
        timezone=windows.zone,
        fmt=windows.key_format,
        end_offset=1,
    )


def unusable_windows(loaded: LoadedSpec) -> Iterator[Problem]:
    """Windows that Dagster cannot have as partitions."""
    for group, spec in loaded.spec.groups.items():
        message = _complaint(windows_of(spec.window), system_clock() // DAY_MS * DAY_MS)
        if message:
            yield loaded.problem(("groups", group, "window"), f"groups.{group}.window: {message}")


@lru_cache(maxsize=256)
def _complaint(windows: Windows, now_ms: int) -> str | None:
    """What is wrong with windows, as of a day."""
    if windows.start_ms > now_ms + DAY_MS:
        return "the windows would start in the future (let them start now, or earlier)"
    number = windows.count(now_ms)
    if number > MOST_PARTITIONS:
        return (
            f"that is {number:,} windows since {windows.first:%Y-%m-%d}, and Dagster bears "
            f"{MOST_PARTITIONS:,} partitions (choose longer windows, or a later start, as in "
            '{cron: "*/15 * * * *", start: 2026-06-01T00:00:00Z})'
        )
    for at_ms in (now_ms, *_clock_changes(windows.zone, now_ms)):
        found = _disagreement(windows, at_ms)
        if found:
            return (
                f"Dagster takes the window {found.key} for another span of time, as the clocks of "
                f"{windows.zone} change (let no window begin in the hour that is left out or comes "
                "twice there, or use UTC)"
            )
    return None


def _clock_changes(zone: str, now_ms: int) -> Iterator[int]:
    """The days on which a zone will change its clocks."""
    if zone == "UTC":
        return
    clocks = ZoneInfo(zone)
    day = datetime.fromtimestamp(now_ms / 1000, UTC)
    offset = day.astimezone(clocks).utcoffset()
    for _ in range(YEARS_AHEAD * 366):
        day += timedelta(days=1)
        if day.astimezone(clocks).utcoffset() != offset:
            offset = day.astimezone(clocks).utcoffset()
            yield int(day.timestamp() * 1000) - DAY_MS


def _disagreement(windows: Windows, at_ms: int) -> Window | None:
    """The first window around a day that Dagster sees otherwise."""
    window = windows.at(at_ms)
    while window.start_ms < at_ms + DAY_MS:
        if not _agrees(partitions_of(windows), window, is_first=window == windows.at(0)):
            return window
        window = windows.at(window.end_ms)
    return None


def _agrees(partitions: TimeWindowPartitionsDefinition, window: Window, *, is_first: bool) -> bool:
    """Whether a window's name means the same to Dagster; the first window also has what is older.
    Dagster's own calculation fails in some zones."""
    try:
        span = partitions.time_window_for_partition_key(window.key)
        key = partitions.get_partition_key_for_timestamp(span.start.timestamp())
    except Exception:  # noqa: BLE001
        return False
    start_ms, end_ms = (moment.timestamp() * 1000 for moment in (span.start, span.end))
    return (key, end_ms) == (window.key, window.end_ms) and (
        is_first or start_ms == window.start_ms
    )
