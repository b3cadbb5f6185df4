"""A thread in which desks take their turns, and write together what they have to write.

On a store where one writes at a time, the workers of a process would only queue: for the store, and
for the interpreter. There they share one thread, and their changes one transaction. On any other
store each desk has a thread of its own.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from dagster_bus.core.store import Change, Store
from dagster_bus.live.outlook import Ends
from dagster_bus.live.pace import ROUND_S
from dagster_bus.live.shelf import Shelf

LONGEST_S = 1.0

REST = 0.75
"""An office rests for this part of the time that a round takes, so that publishers and handlers,
who need the interpreter too, get their share of it …"""
LONGEST_REST_S = 0.02
"""… but no longer than this."""


class Turns(Protocol):
    """A desk, as the office sees it."""

    is_rung: bool
    """Somebody has something for it; set before the office is woken."""
    wake_at: float
    """When it wants its next turn, if nobody rings."""

    def begin(self, now_s: float) -> None:
        """The first part of a turn: hear what has come by now, and give out what is there."""

    def wish(self, now_s: float, *, is_round: bool) -> Change | None:
        """The second part: what it would have written now, if this is a round."""

    def finish(self, now_s: float, refused: Exception | None) -> bool:
        """The third part: that was written, unless it was refused. Says whether all is over."""

    def is_busy(self) -> bool:
        """Whether it has to give out work as soon as a hand is free."""

    def leave(self) -> None:
        """It has had its last turn."""


class Office:
    """Gives turns to those who were rung for, or have waited long enough. All that they write is
    written in rounds, which are some time apart, so that many have something for each of them. Who
    comes after a longer silence does not wait."""

    def __init__(self, store: Store | None, name: str) -> None:
        self._store = store
        self._name = name
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._desks: list[Turns] = []
        self._thread: threading.Thread | None = None
        self._ends: dict[tuple[str, ...], Ends] = {}
        self._last_took_s = 0.0
        self.round_at = 0.0
        """When the next round may be."""

    def ring(self) -> None:
        """Somebody wants a turn."""
        if not self._bell.is_set():
            self._bell.set()

    def ends(self, topics: tuple[str, ...]) -> Ends:
        """Where some topics ended when this turn began; to be asked in `wish`."""
        if topics not in self._ends and self._store is not None:
            bounds = self._store.bounds(topics)
            self._ends[topics] = {at: each.end for at, each in bounds.items()}
        return self._ends.get(topics, {})

    def add(self, desk: Turns) -> None:
        with self._lock:
            self._desks.append(desk)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self.ring()

    def _run(self) -> None:
        while True:
            self._bell.clear()
            now_s = time.monotonic()
            desks = [each for each in self._desks if each.is_rung or now_s >= each.wake_at]
            if desks:
                self._give_turns(desks, now_s)
            with self._lock:
                if not self._desks:
                    self._thread = None
                    return
            self._rest()

    def _give_turns(self, desks: Sequence[Turns], now_s: float) -> None:
        is_round = now_s >= self.round_at
        wishes: dict[Turns, Change] = {}
        for desk in desks:
            desk.is_rung = False
            desk.begin(now_s)
        self._ends.clear()  # after all have heard: what came since rings again
        for desk in desks:
            change = desk.wish(now_s, is_round=is_round)
            if change is not None:
                wishes[desk] = change
        refused = self._write(wishes)
        if wishes:
            self._plan_rest(now_s, time.monotonic())
        for desk in desks:
            if desk.finish(now_s, refused.get(desk)):
                self._dismiss(desk)

    def _plan_rest(self, begun_s: float, done_s: float) -> None:
        """Of two rounds the shorter one counts: what held up one of them is over."""
        took_s, self._last_took_s = min(done_s - begun_s, self._last_took_s), done_s - begun_s
        self.round_at = done_s + min(max(REST * took_s, ROUND_S), LONGEST_REST_S)

    def _write(self, wishes: Mapping[Turns, Change]) -> dict[Turns, Exception | None]:
        if not wishes or self._store is None:
            return {}
        try:
            answers = self._store.commit_all([*wishes.values()])
        except Exception as error:  # noqa: BLE001  (each of them says what it makes of it)
            return dict.fromkeys(wishes, error)
        return dict(zip(wishes, answers, strict=True))

    def _dismiss(self, desk: Turns) -> None:
        with self._lock:
            self._desks.remove(desk)
        desk.leave()

    def _rest(self) -> None:
        now_s = time.monotonic()
        if now_s < self.round_at and not any(each.is_busy() for each in self._desks):
            time.sleep(self.round_at - now_s)  # whoever rings by then comes in time
            return
        wake_at = min((each.wake_at for each in self._desks), default=now_s)
        self._bell.wait(min(max(wake_at - now_s, 0.0), LONGEST_S))


class Offices:
    """The offices of a bus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[Store, tuple[Office, Shelf]] = {}

    def of(self, store: Store, name: str) -> tuple[Office, Shelf]:
        """Where a worker on a store has its desk, and reads what is new."""
        with self._lock:
            if store not in self._shared:
                self._shared[store] = (Office(store, "bus-office"), Shelf(store))
            office, shelf = self._shared[store]
        return (office if store.takes_turns else Office(store, f"bus-{name}")), shelf
