"""Windows: the spans of append time that a group's table is divided by.

As time never decreases along a partition, a window is one offset range in each partition.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

HOUR_MS = 3_600_000

FIRST_WINDOW = datetime(2025, 1, 1, tzinfo=UTC)
"""No event is older: the bus stamps events itself, and refuses to by a clock before this."""

FIRST_WINDOW_MS = int(FIRST_WINDOW.timestamp() * 1000)

KEY_FORMAT = "%Y-%m-%dT%H"
"""A window's name: sorts by time, and is safe in paths and in Dagster partition keys."""


@dataclass(frozen=True, slots=True)
class Window:
    key: str
    start_ms: int
    end_ms: int


def hour_of(ts_ms: int) -> Window:
    """The hour, in UTC, that a time belongs to."""
    return _hour_from(ts_ms - ts_ms % HOUR_MS)


@lru_cache(maxsize=64)
def _hour_from(start_ms: int) -> Window:
    key = datetime.fromtimestamp(start_ms / 1000, UTC).strftime(KEY_FORMAT)
    return Window(key, start_ms, start_ms + HOUR_MS)
