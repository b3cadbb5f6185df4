"""Calls of a user's hooks, in a thread of their own: a hook that takes long holds up no event."""

import logging
import queue
import threading
from collections.abc import Callable

LOGGER = logging.getLogger("dagster_bus")

STOP_S = 5.0


class Errands:
    """Calls that are made one after the other, in the order they were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._left = 0
        self._thread: threading.Thread | None = None

    def run(self, errand: Callable[[], object]) -> None:
        """Make a call soon. If it fails, that is logged, and nothing else."""
        with self._lock:
            self._left += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="bus-hooks", daemon=True)
                self._thread.start()
        self._queue.put(errand)

    @property
    def is_idle(self) -> bool:
        return self._left == 0

    def close(self, timeout_s: float = STOP_S) -> None:
        """Make the calls that were asked for, and end. Harmless when repeated."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._queue.put(None)
            self._thread.join(timeout_s)

    def _work(self) -> None:
        while (errand := self._queue.get()) is not None:
            try:
                errand()
            except Exception:
                LOGGER.exception("a hook of a subscription failed")
            finally:
                with self._lock:
                    self._left -= 1
