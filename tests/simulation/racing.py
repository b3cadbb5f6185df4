"""A store as one actor sees it: others may come in before it writes, and a referee looks on."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from dagster_bus.core.store import Change, Store
from dagster_bus.errors import StaleState
from tests.simulation.intents import Intent
from tests.simulation.referee import Referee


class Raced:
    """Stands before the real store, for one call."""

    def __init__(
        self,
        store: Store,
        referee: Referee,
        intent: Intent,
        counts: Counter[str],
        let_others_in: Callable[[], None],
    ) -> None:
        self._store = store
        self._referee = referee
        self._intent = intent
        self._counts = counts
        self._let_others_in = let_others_in

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, change: Change) -> None:
        self._let_others_in()
        try:
            self._store.commit(change)
        except StaleState:
            self._counts["stale"] += 1
            raise
        self._referee.committed(change, self._intent)
