"""Windows: the spans of append time that a group's table is divided by.

As time never decreases along a partition, a window is one offset range in each partition. A window
is named by the local time that it begins at; the names are those that Dagster gives to the same
time windows.

Where a zone puts its clocks forward, a window that should begin in the hour that is left out begins
after it. Where clocks are put back, it begins when its time comes for the second time, but at
midnight for the first time, as the day begins then. Windows that begin in every hour begin whenever
their minute comes.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from dagster_bus.core.cron import Cron, cron

HOUR_MS = 3_600_000

FIRST_WINDOW = datetime(2025, 1, 1, tzinfo=UTC)
"""No event is older: the bus stamps events itself, and refuses to by a clock before this."""

FIRST_WINDOW_MS = int(FIRST_WINDOW.timestamp() * 1000)

LONGEST_PAUSE = 366 * 8 + 2
"""Days until the next 29 February, at most."""


@dataclass(frozen=True, slots=True)
class Window:
    key: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Windows:
    """How time is divided: a window begins whenever the schedule says, by the clocks of a zone.

    The first one is that of `start_ms`; all that is older belongs to it as well."""

    cron: str
    zone: str = "UTC"
    start_ms: int = FIRST_WINDOW_MS

    @property
    def schedule(self) -> Cron:
        return cron(self.cron)

    def at(self, ts_ms: int) -> Window:
        """The window that a time belongs to."""
        window = self._around(max(ts_ms, self.start_ms))
        if window.start_ms > self.start_ms:
            return window
        return replace(window, start_ms=min(window.start_ms, FIRST_WINDOW_MS))

    def find(self, key: str) -> Window | None:
        """The window of a name, if there is one."""
        begin_ms = self._begin_ms(key)
        if begin_ms is None:
            return None
        window = self.at(begin_ms)  # what a name leaves out, the window may begin after
        if window.key != key:
            window = self.at(window.end_ms)
        return window if window.key == key else None

    @property
    def first(self) -> datetime:
        """Where the first window begins, by the zone's clocks."""
        start_ms = self._around(self.start_ms).start_ms
        return _local(start_ms, self.zone).replace(tzinfo=None)

    @property
    def key_format(self) -> str:
        """As little as names the window, without characters that paths or Dagster take amiss."""
        if len(self.schedule.times) == 1:
            return "%Y-%m-%d"
        return "%Y-%m-%dT%H" if self.schedule.minutes == (0,) else "%Y-%m-%dT%H%M"

    def count(self, until_ms: int) -> int:
        """About how many windows there are up to a time."""
        first, last = self.first.toordinal(), _local(until_ms, self.zone).toordinal()
        days = sum(self.schedule.is_on(date.fromordinal(day)) for day in range(first, last + 1))
        return days * len(self.schedule.times)

    def _around(self, ts_ms: int) -> Window:
        marks = _marks(self.cron, self.zone, _local(ts_ms, self.zone).toordinal())
        after = bisect_right(marks, ts_ms)
        return _window(self, marks[after - 1], marks[after])

    def _begin_ms(self, key: str) -> int | None:
        for format in (self.key_format, f"{self.key_format}%z"):
            try:
                begin = datetime.strptime(key, format)  # noqa: DTZ007  (the zone comes next)
            except ValueError:
                continue
            if begin.tzinfo is None:
                fold = 0 if self.schedule.is_every_hour else 1
                begin = begin.replace(tzinfo=_zone(self.zone), fold=fold)
            return _ms(begin)
        return None


HOURLY = Windows("0 * * * *")
DAILY = Windows("0 0 * * *")
WEEKLY = Windows("0 0 * * 0")
MONTHLY = Windows("0 0 1 * *")


@lru_cache(maxsize=256)
def _window(windows: Windows, start_ms: int, end_ms: int) -> Window:
    start = _local(start_ms, windows.zone)
    repeats = windows.schedule.is_every_hour and start.fold and windows.zone != "UTC"
    key = start.strftime(f"{windows.key_format}%z" if repeats else windows.key_format)
    return Window(key, start_ms, end_ms)


@lru_cache(maxsize=1024)
def _marks(text: str, zone: str, day: int) -> tuple[int, ...]:
    """Where windows begin on a day; first the last one before it, and then the first one after."""
    schedule = cron(text)
    before = _nearest(schedule, zone, range(day - 1, day - LONGEST_PAUSE, -1))
    after = _nearest(schedule, zone, range(day + 1, day + LONGEST_PAUSE))
    return (before[-1], *_starts(schedule, zone, day), after[0])


def _nearest(schedule: Cron, zone: str, days: Iterable[int]) -> list[int]:
    return next(found for day in days if (found := _starts(schedule, zone, day)))


def _starts(schedule: Cron, zone: str, day: int) -> list[int]:
    """When windows begin on one day."""
    on = date.fromordinal(day)
    if not schedule.is_on(on):
        return []
    local = [datetime.combine(on, time(*each, tzinfo=_zone(zone))) for each in schedule.times]
    return sorted({_ms(each) for begin in local for each in _real(begin, schedule.is_every_hour)})


def _real(begin: datetime, is_every_hour: bool) -> list[datetime]:
    """When the clocks of a zone show a time: once as a rule."""
    again = begin.replace(fold=1)
    before, after = begin.utcoffset(), again.utcoffset()
    if before is None or after is None or before == after:
        return [begin]
    if before > after:  # put back: it comes twice
        if is_every_hour:
            return [begin, again]
        return [again if begin.hour else begin]
    if is_every_hour:
        return []
    while begin.utcoffset() != begin.replace(fold=1).utcoffset():  # put forward: it never comes
        begin += timedelta(minutes=1)
    return [begin]


def _local(ts_ms: int, zone: str) -> datetime:
    return datetime.fromtimestamp(ts_ms / 1000, _zone(zone))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)  # a bare machine knows no zones
