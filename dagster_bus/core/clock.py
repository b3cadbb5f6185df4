"""Time: whole milliseconds since the epoch, from a clock that can be replaced."""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    """Milliseconds since the epoch by this machine's clock."""
    return time.time_ns() // 1_000_000
