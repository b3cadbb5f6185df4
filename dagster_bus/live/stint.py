"""Jobs that one hand does in a row, watched by the one who gave them out.

The hand may overrun: a thread that is stuck in a handler cannot be stopped. Then the watcher
declares the job over, and whatever the hand says of it later is not heard.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable

from dagster_bus.live.jobs import Ended, Job


class Stint:
    """Ends with its last job, or with the first that fails: what follows may depend on it."""

    def __init__(self, jobs: Iterable[Job], halted: threading.Event) -> None:
        self._lock = threading.Lock()
        self._halted = halted
        self._left = deque(jobs)
        self._current: Job | None = None
        self._begun_s = 0.0
        self._ended: list[Ended] = []
        self._is_over = False

    def begin(self) -> Job | None:
        """By the hand: the next job, or None at the end."""
        with self._lock:
            if self._is_over or not self._left or self._halted.is_set():
                self._is_over = True
                return None
            self._current = self._left.popleft()
            self._begun_s = time.monotonic()
            return self._current

    def end(self, job: Job, error: BaseException | None) -> bool:
        """By the hand: what came of a job. False if nobody waits for that any more."""
        with self._lock:
            if self._current is not job:
                return False
            self._current = None
            self._ended.append(Ended(job, error))
            self._is_over = self._is_over or error is not None
            return True

    @property
    def is_over(self) -> bool:
        """Whether no job of it runs or will be begun."""
        with self._lock:
            return self._current is None and (self._is_over or not self._left)

    def begun_s(self) -> float | None:
        """When the present job was begun."""
        with self._lock:
            return None if self._current is None else self._begun_s

    def collect(self) -> list[Ended]:
        """By the watcher: what has ended since the last time."""
        with self._lock:
            ended, self._ended = self._ended, []
            return ended

    def take_back(self) -> list[Job]:
        """By the watcher: the jobs that were not begun, and now never will be."""
        with self._lock:
            self._is_over = True
            left = [*self._left]
            self._left.clear()
            return left

    def give_up(self, begun_before_s: float = float("inf")) -> Job | None:
        """By the watcher: the job that runs, if it was begun before a time. Nothing that is said
        of it counts any more, and none follows."""
        with self._lock:
            if self._current is None or self._begun_s > begun_before_s:
                return None
            job, self._current = self._current, None
            self._is_over = True
            return job
