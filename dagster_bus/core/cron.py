"""Schedules of five fields, as cron has them: minute, hour, day of the month, month, weekday."""

import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from dagster_bus.errors import UsageError

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_SIZES = (60, 24, 31, 12, 7)
_PART = re.compile(r"(?:\*|([a-z0-9]{1,3})(?:-([a-z0-9]{1,3}))?)(?:/([0-9]{1,2}))?", re.ASCII)
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cron:
    """When something happens; each field holds its values in order."""

    minutes: Values
    hours: Values
    days: Values
    months: Values
    weekdays: Values
    """From Sunday, which is 0, to Saturday."""

    @property
    def is_every_hour(self) -> bool:
        return len(self.hours) == 24

    @property
    def times(self) -> list[tuple[int, int]]:
        """The hours and minutes of a day on which it happens."""
        return [(hour, minute) for hour in self.hours for minute in self.minutes]

    def is_on(self, day: date) -> bool:
        """Whether it happens on a day. If both kinds of days are restricted, either will do."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        both = len(self.days) < 31 and len(self.weekdays) < 7
        return by_day or by_weekday if both else by_day and by_weekday

    def __str__(self) -> str:
        """The one way to write it with numbers only, which nobody takes for anything else."""
        fields = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join(
            "*" if len(values) == size else ",".join(map(str, values))
            for values, size in zip(fields, _SIZES, strict=True)
        )


@lru_cache(maxsize=256)
def cron(text: str) -> Cron:
    """Raises UsageError, which says what is wrong with the text."""
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        raise UsageError(
            "five fields: minute, hour, day of the month, month, day of the week, such as "
            "'0 6 * * *'"
        )
    minutes, hours, days, months, weekdays = map(_values, fields, _FIELDS)
    found = Cron(minutes, hours, days, months, tuple(sorted({each % 7 for each in weekdays})))
    longest = max(_LONGEST_MONTHS[month - 1] for month in months)
    if len(found.weekdays) == 7 and min(days) > longest:
        raise UsageError("there is no such day in any of its months")
    return found


def _values(field: str, kind: tuple[str, int, int, dict[str, int]]) -> Values:
    noun, low, high, names = kind
    parts = [_part(part, low, high, names) for part in field.split(",")]
    if None in parts:
        raise UsageError(
            f"its {noun} is {field!r} ({low} to {high}, '*', lists with ',', ranges with '-', "
            "steps with '/')"
        )
    return tuple(sorted({value for part in parts for value in part or ()}))


def _part(part: str, low: int, high: int, names: dict[str, int]) -> range | None:
    """The values of one item of a list, if it has any meaning."""
    found = _PART.fullmatch(part)
    if found is None:
        return None
    words, step = found.groups()[:2], int(found[3] or 1)
    numbers = [_number(word, names) for word in words if word is not None]
    if numbers != sorted(numbers) or not all(low <= number <= high for number in numbers):
        return None
    if not 1 <= step <= high:
        return None
    first = numbers[0] if numbers else low
    highest = 6 if high == 7 else high  # Sunday has two numbers, and counts once
    last = numbers[-1] if len(numbers) == 2 or (numbers and not found[3]) else highest
    return range(first, max(first, last) + 1, step)


def _number(word: str, names: dict[str, int]) -> int:
    return int(word) if word.isdigit() else names.get(word, -1)
