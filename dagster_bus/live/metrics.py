"""Telling the counters of this process, and the lag of its groups, on a topic, again and again."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dagster_bus.core.clock import Clock
from dagster_bus.core.store import Store
from dagster_bus.core.system import METRICS, is_system_topic, told
from dagster_bus.errors import BusError
from dagster_bus.live.counters import Counters

LOGGER = logging.getLogger("dagster_bus")

STOP_S = 5.0

Lags = Callable[[], Mapping[str, int]]
"""How many events each group that has subscribers here still has to settle."""


class Metrics:
    """A thread that tells the present numbers every so many seconds, from the first subscriber on,
    and once more at the end."""

    def __init__(
        self, store: Store, clock: Clock, counters: Counters, process: str, lags: Lags
    ) -> None:
        self._store = store
        self._clock = clock
        self._counters = counters
        self._process = process
        self._lags = lags
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, every_s: float) -> None:
        """Begin. Harmless when repeated."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(every_s,), name="bus-metrics", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Tell the last numbers, and end. Harmless when repeated."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def _run(self, every_s: float) -> None:
        stopped = False
        while not stopped:
            stopped = self._stopped.wait(every_s)
            try:
                now_ms = self._clock()
                self._store.append([told(METRICS, [self._numbers()], now_ms)], now_ms)
            except BusError as error:
                LOGGER.warning("cannot tell the numbers of this process: %s", error)

    def _numbers(self) -> dict[str, Any]:
        counted = self._counters.snapshot()
        topics = {name: each for name, each in counted.items() if not is_system_topic(name)}
        in_flight = {name: each.pop("in_flight") for name, each in topics.items()}
        return {
            "process": self._process,
            "counters": topics,
            "gauges": {"in_flight": in_flight, "lag": dict(self._lags())},
        }
