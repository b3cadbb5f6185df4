"""What this process counts of what it publishes and of its subscriptions, by topic."""

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, get_args

Name = Literal[
    "published",
    "schema_rejected",
    "delivered",
    "acked",
    "redelivered",
    "handler_threw",
    "disabled_by_backpressure",
    "disabled_by_hand",
    "in_flight",
]
NAMES: tuple[Name, ...] = get_args(Name)
"""Each only rises, but for `in_flight`: the events that handlers have just now."""


class Counters:
    """Numbers that many threads raise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: defaultdict[str, dict[Name, int]] = defaultdict(
            lambda: dict.fromkeys(NAMES, 0)
        )

    def add(self, name: Name, topic: str, number: int = 1) -> None:
        with self._lock:
            self._topics[topic][name] += number

    def add_each(self, name: Name, topics: Iterable[str], number: int = 1) -> None:
        """Raise a counter once for each time that a topic is named."""
        with self._lock:
            for topic in topics:
                self._topics[topic][name] += number

    def snapshot(self) -> dict[str, dict[str, int]]:
        """All numbers of one moment, by topic and name."""
        with self._lock:
            return {
                topic: {str(name): number for name, number in numbers.items()}
                for topic, numbers in sorted(self._topics.items())
            }
