"""The threads of a bus that call handlers.

To wake a thread costs more than most calls do, and ten that are awake get in each other's way. So
what is done quickly is done by one of them after the other; what has to wait behind something slow
gets another thread.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

Task = Callable[[], None]
"""Never raises."""

PATIENCE_S = 0.005
"""How long nothing of the common work may be begun before others help."""


class Hands:
    """Threads, made when they are needed and kept for the next task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Hand] = []
        self._common: deque[Task] = deque()
        self._begun = 0
        """Common tasks, ever."""
        self._team = _Team()
        self._watcher: threading.Thread | None = None
        self._alarm = threading.Event()
        """There may be something to watch."""
        self._is_closed = False

    def give(self, task: Task) -> None:
        """Have a task done at once, by a hand of its own."""
        with self._lock:
            self._appoint(task)

    def give_quick(self, task: Task) -> None:
        """Have a task done that should not take long, when it is its turn."""
        with self._lock:
            self._common.append(task)
            if not self._team.size:
                self._add_to_team(1)
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="bus-hands-watch", daemon=True
                )
                self._watcher.start()
        if not self._alarm.is_set():
            self._alarm.set()

    def close(self) -> None:
        """Let the threads go: those that are free now, the others when they are done."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for hand in free:
            hand.give(None)
        self._alarm.set()

    def come_back(self, hand: "_Hand") -> bool:
        """By a hand that is done; says whether it is to stay."""
        with self._lock:
            if not self._is_closed:
                self._free.append(hand)
            return not self._is_closed

    def _appoint(self, task: Task) -> None:
        hand = self._free.pop() if self._free else _Hand(self)
        hand.give(task)

    def _add_to_team(self, number: int) -> None:
        for _ in range(number):
            self._team.size += 1
            self._appoint(partial(self._do_common, self._team))

    def _do_common(self, team: "_Team") -> None:
        """Do common tasks until there are none, or until others have taken over."""
        while task := self._next_common(team):
            task()

    def _next_common(self, team: "_Team") -> Task | None:
        with self._lock:
            if team is not self._team:
                return None
            if not self._common:
                team.size -= 1
                return None
            self._begun += 1
            return self._common.popleft()

    def _watch(self) -> None:
        seen = 0
        while self._alarm.wait() and not self._is_closed:
            time.sleep(PATIENCE_S)
            with self._lock:
                stands_still, seen = self._begun == seen, self._begun
                if stands_still and self._common:
                    slow, self._team = self._team, _Team()
                    self._add_to_team(min(2 * slow.size, len(self._common)))
                elif stands_still:
                    self._alarm.clear()


class _Team:
    """The hands that do common tasks. If all of them are held up, others take their place."""

    size = 0


class _Hand:
    """A thread that does tasks until it is given none."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._inbox: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="bus-handler", daemon=True).start()

    def give(self, task: Task | None) -> None:
        self._inbox.put(task)

    def _run(self) -> None:
        while (task := self._inbox.get()) is not None:
            task()
            if not self._hands.come_back(self):
                return
