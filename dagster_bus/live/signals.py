"""Signals: what the bus says of itself, to subscribers in this process, on topics `bus.*`.

They are kept nowhere. A handler of signals that fails is no reason for another signal: there would
be no end to it.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dagster_bus.core.clock import Clock
from dagster_bus.core.event import NORMAL_PRIORITY, Event, uuid7
from dagster_bus.core.system import SOURCE
from dagster_bus.core.topic import matching

SUBSCRIBER_DISABLED = "bus.subscriber.disabled"
HANDLER_ERROR = "bus.handler.error"
MESSAGE_REJECTED = "bus.message.rejected"

_PREFIX = "bus."

Receiver = Callable[[Event], object]


def is_for_signals(pattern: str) -> bool:
    """Whether a pattern asks for signals. Only one that says so does; `**` means the topics."""
    return pattern.startswith(_PREFIX)


class Signals:
    """Hands each signal to whoever has asked for its topic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._receivers: dict[str, tuple[str, Receiver]] = {}
        self._sent = 0

    def add(self, id: str, pattern: str, receive: Receiver) -> None:
        with self._lock:
            self._receivers[id] = (pattern, receive)

    def remove(self, id: str) -> None:
        with self._lock:
            self._receivers.pop(id, None)

    def send(self, topic: str, payload: Mapping[str, Any]) -> None:
        """Tell all who want to know. Receivers only take note: nothing here waits for them."""
        with self._lock:
            wanted = [call for pattern, call in self._receivers.values() if _fits(pattern, topic)]
            if not wanted:
                return
            self._sent += 1
            event = self._event(topic, payload, self._sent)
        for receive in wanted:
            receive(event)

    def _event(self, topic: str, payload: Mapping[str, Any], offset: int) -> Event:
        now_ms = self._clock()
        return Event(
            id=uuid7(now_ms),
            ts=now_ms,
            topic=topic,
            partition=0,
            offset=offset,
            key=None,
            source=SOURCE,
            schema_version=1,
            attributes_json="{}",
            priority=NORMAL_PRIORITY,
            idempotency_key=None,
            ttl_s=None,
            payload_json=json.dumps(payload, separators=(",", ":")),
            payload_sha256=None,
        )


def _fits(pattern: str, topic: str) -> bool:
    return bool(matching(pattern, [topic]))
