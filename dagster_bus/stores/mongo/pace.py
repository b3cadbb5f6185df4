"""How long to wait between attempts at transactions that get into each other's way.

Of two transactions that change one document the second fails at once: MongoDB does not let it wait
its turn. So publishers of one partition have to find their turns themselves. Each waits a random
part of a window that grows with every conflict and shrinks with every success. It is remembered
from one transaction to the next: if each began with no wait at all, fifty processes would spend
their time on conflicts, and the one that has just won would win again.
"""

import random
import time

FIRST_S = 0.01
LONGEST_S = 0.5
GROWTH = 1.5
DECAY = 0.6
NOTHING_S = 0.004
"""A window that is not worth waiting for."""


class Pace:
    """One for all threads of a store; that a step is lost between them does no harm."""

    def __init__(self) -> None:
        self._window_s = 0.0

    def wait(self) -> None:
        if self._window_s > NOTHING_S:
            time.sleep(random.random() * self._window_s)

    def slow_down(self) -> None:
        self._window_s = min(max(self._window_s * GROWTH, FIRST_S), LONGEST_S)

    def speed_up(self) -> None:
        self._window_s *= DECAY
