"""Points and patterns of time: timestamps, cron schedules, time zones."""

import zoneinfo
from datetime import UTC, datetime

from dagster_bus.core.cron import cron
from dagster_bus.errors import UsageError
from dagster_bus.spec.hints import nearest, shown


def iso_timestamp(text: str) -> str:
    """A timestamp of ISO 8601 that says its zone. Raises ValueError for anything else."""
    timestamp_ms(text)
    return text


def timestamp_ms(text: str) -> int:
    """Milliseconds since 1970 of a timestamp."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{shown(text)} is not a point in time (ISO 8601 with its zone, such as "
            "2026-01-31T08:00:00Z)"
        )
    try:
        return int(moment.astimezone(UTC).timestamp() * 1000)
    except OverflowError:  # the zone moves it out of the calendar
        raise ValueError(f"{shown(text)} lies outside the calendar") from None


def cron_schedule(text: str) -> str:
    """A schedule of five fields. Raises ValueError naming the field that is wrong."""
    try:
        cron(text)
    except UsageError as error:
        raise ValueError(f"{shown(text)} is not a cron schedule: {error}") from None
    return text


def time_zone(name: str) -> str:
    """A zone of the time zone database. Raises ValueError naming the nearest one."""
    if name == "UTC":
        return name
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        zones = sorted(zoneinfo.available_timezones())
        if not zones:  # a bare machine knows none, and must not refuse all of them
            return name
        close = nearest(name, zones)
        meant = f"did you mean {close!r}?" if close else "such as Europe/Berlin"
        raise ValueError(f"{shown(name)} is not a time zone ({meant})") from None
    return name
