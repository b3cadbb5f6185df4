"""Points and patterns of time: timestamps, cron schedules, time zones."""

import re
import zoneinfo
from datetime import UTC, datetime

from dagster_bus.spec.hints import nearest, shown

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_CRON_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_CRON_PART = re.compile(r"(?:\*|([a-z0-9]{1,3})(?:-([a-z0-9]{1,3}))?)(?:/([0-9]{1,2}))?")


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
    fields = text.lower().split()
    if len(fields) != len(_CRON_FIELDS):
        raise ValueError(
            f"{shown(text)} is not a cron schedule (five fields: minute, hour, day of the month, "
            "month, day of the week, such as '0 6 * * *')"
        )
    for field, (noun, low, high, names) in zip(fields, _CRON_FIELDS, strict=True):
        if not all(_fits(part, low, high, names) for part in field.split(",")):
            raise ValueError(
                f"{shown(text)} is not a cron schedule: its {noun} is {field!r} ({low} to {high}, "
                "'*', lists with ',', ranges with '-', steps with '/')"
            )
    return text


def _fits(part: str, low: int, high: int, names: dict[str, int]) -> bool:
    found = _CRON_PART.fullmatch(part)
    if found is None:
        return False
    first, last, step = found.groups()
    numbers = [_number(word, names) for word in (first, last) if word is not None]
    return (
        all(low <= number <= high for number in numbers)
        and numbers == sorted(numbers)
        and (step is None or 1 <= int(step) <= high)
    )


def _number(word: str, names: dict[str, int]) -> int:
    return int(word) if word.isdigit() else names.get(word, -1)


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
