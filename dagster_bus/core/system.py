"""The topics on which the bus tells of itself, durably, where that was asked for.

They are topics as any other for those who read them; only the bus writes to them. What happens to
their own events is told on none of them, so that there is no end of telling.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from dagster_bus.core.event import NORMAL_PRIORITY, Batch, uuid7s

METRICS = "system.metrics"
DEAD_LETTERS = "system.bus.dlq"
AUDIT = "system.bus.audit"

SOURCE = "dagster-bus"

_PREFIX = "system."


def is_system_topic(topic: str) -> bool:
    return topic.startswith(_PREFIX)


def told(topic: str, payloads: Sequence[Mapping[str, Any]], now_ms: int) -> Batch:
    """What the bus has to say on one of its topics, ready to be appended to its one partition."""
    count = len(payloads)
    texts = [orjson.dumps(payload).decode() for payload in payloads]
    nothing = [None] * count
    return Batch(
        topic=topic,
        partitions=[0] * count,
        ids=uuid7s(now_ms, count),
        keys=nothing,
        sources=[SOURCE] * count,
        schema_versions=[1] * count,
        attributes=["{}"] * count,
        priorities=[NORMAL_PRIORITY] * count,
        idempotency_keys=nothing,
        ttls=nothing,
        payloads=texts,
        payload_sha256s=nothing,
        sizes=[len(text.encode()) for text in texts],
    )
