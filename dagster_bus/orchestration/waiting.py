"""Ticks that wait for events, so that these need not wait for the next tick.

The daemon comes by every few seconds. Where it gives each sensor a thread of its own, a tick that
finds nothing may stay and listen: a run is then asked for as soon as there is an event. It stays
far below the minute after which Dagster gives a tick up, and leaves threads to others.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from dagster import SensorEvaluationContext

from dagster_bus.core.store import Listener

T = TypeVar("T")

IDLE_S = 9.0
"""How long a tick waits for a group that has nothing to do: until the daemon comes by, each 5 s,
for the second time. Dagster ends only when its ticks have."""

BUSY_S = 4.0
"""… and for one with work under way: until it comes by again."""

LOOK_S = 1.0
"""How often to look for what no event tells of: the end of a run, or of a wait."""

PAUSE_S = 0.1
"""Before each look that somebody's writing calls for, however often that is; or as long as a look
takes, if that is longer."""

REST = 10
"""… and how many times as long as a look takes nobody looks, if nobody writes. A look at thousands
of groups takes its time."""


class Places:
    """Threads of this process that may be kept by ticks that wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.taken = 0

    @contextmanager
    def one_of(self, most: int) -> Iterator[bool]:
        """Whether there was one left of so many; it is kept for the length of the block."""
        with self._lock:
            got = self.taken < most
            self.taken += got
        try:
            yield got
        finally:
            with self._lock:
                self.taken -= got


PLACES = Places()


def first_news(
    context: SensorEvaluationContext,
    listen: Callable[[], Listener],
    look: Callable[[], T],
    patience_s: Callable[[T], float],
) -> T:
    """What a look finds, as soon as it is worth telling: `patience_s` says how long to wait for
    something better, 0 if not at all. Without a thread to wait in, what the first look finds."""
    with PLACES.one_of(places_to_wait(context)) as may_wait:
        if not may_wait:
            return look()
        began = time.monotonic()
        with listen() as listener:  # from before the first look on, so that nothing slips through
            found, took_s = _timed(look)
            while (left_s := began + patience_s(found) - time.monotonic()) > 0:
                if not threading.main_thread().is_alive():  # the code location is being ended
                    break
                if listener.wait(min(left_s, max(LOOK_S, REST * took_s))):
                    # what belongs together is often published together
                    time.sleep(min(left_s, max(PAUSE_S, took_s)))
                found, took_s = _timed(look)
            return found


def _timed(look: Callable[[], T]) -> tuple[T, float]:
    began = time.monotonic()
    return look(), time.monotonic() - began


def places_to_wait(context: SensorEvaluationContext) -> int:
    """How many ticks of this process may wait at a time: half of the threads that the daemon or
    this process has for ticks, and none if the daemon has one for all. Somebody who looks at a
    preview waits for nothing."""
    settings = context.instance.get_sensor_settings()
    if not settings.get("use_threads") or context.last_sensor_start_time is None:
        return 0
    usual = min(32, (os.cpu_count() or 1) + 4)  # of any pool of threads whose size was not said
    return min(settings.get("num_workers") or usual, usual) // 2
