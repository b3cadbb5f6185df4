"""Dead letters as ordinary events of another topic, so that a group can subscribe to them.

A topic `orders.created` has its mirror in `orders.created.dlq`, if that is declared, and one in the
bus's own topic for the dead letters of all, if that is on. What a group fails at in a mirror is
mirrored again only if somebody has declared a mirror of the mirror, and what it fails at in one of
the bus's own topics never is: there is no loop.
"""

from collections.abc import Iterable, Mapping, Sequence

import orjson

from dagster_bus.core.event import Attribute, Batch, Event, uuid7s
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.partitioner import partition_of_key
from dagster_bus.core.system import DEAD_LETTERS, is_system_topic
from dagster_bus.core.topic import TopicConfig

SUFFIX = ".dlq"
ERROR_LIMIT = 500


def mirror_of(topic: str) -> str:
    return f"{topic}{SUFFIX}"


def mirrors_among(topics: Mapping[str, TopicConfig]) -> dict[str, dict[str, int]]:
    """The durable mirrors of each topic that has any, with the number of their partitions."""
    found = {}
    for name in topics:
        mirrors = (mirror_of(name), *(() if is_system_topic(name) else (DEAD_LETTERS,)))
        there = [topics[each] for each in mirrors if each in topics and topics[each].durable]
        if there:
            found[name] = {each.name: each.partitions for each in there}
    return found


def mirrored(
    events: Sequence[Event],
    *,
    mirrors: Mapping[str, Mapping[str, int]],
    group: str,
    fingerprint: str,
    errors: Sequence[AttemptError],
    now_ms: int,
) -> list[Batch]:
    """What is to be appended for events that a group gave up on: one batch for each mirror."""
    story: dict[str, Attribute] = {
        "dlq.group": group,
        "dlq.fingerprint": fingerprint,
        "dlq.attempts": len(errors),
        "dlq.error": in_short(errors[-1]) if errors else "",
    }
    return [
        _batch(mirror, partitions, [each for each in events if each.topic == topic], story, now_ms)
        for topic in sorted({event.topic for event in events} & mirrors.keys())
        for mirror, partitions in mirrors[topic].items()
    ]


def _batch(
    mirror: str,
    partitions: int,
    events: Sequence[Event],
    story: Mapping[str, Attribute],
    now_ms: int,
) -> Batch:
    nothing = [None] * len(events)
    attributes = [_attributes(event, story) for event in events]
    payloads = [event.payload_json for event in events]
    keys = [event.key for event in events]
    return Batch(
        topic=mirror,
        partitions=_partitions(events, partitions),
        ids=uuid7s(now_ms, len(events)),
        keys=keys,
        sources=[event.source for event in events],
        schema_versions=[event.schema_version for event in events],
        attributes=attributes,
        priorities=[event.priority for event in events],
        idempotency_keys=nothing,
        ttls=nothing,
        payloads=payloads,
        payload_sha256s=[event.payload_sha256 for event in events],
        sizes=[
            len((key or "").encode()) + len(more.encode()) + len(text.encode())
            for key, more, text in zip(keys, attributes, payloads, strict=True)
        ],
    )


def in_short(error: AttemptError) -> str:
    """An error in one text: not too long, and without half characters, which are no text."""
    text = f"{error.type}: {error.message}"[:ERROR_LIMIT]
    return text.encode("utf-8", "replace").decode()


def _attributes(event: Event, story: Mapping[str, Attribute]) -> str:
    """The event's own attributes, where it stood, and why it died."""
    place = {
        "dlq.topic": event.topic,
        "dlq.partition": event.partition,
        "dlq.offset": event.offset,
        "dlq.id": event.id,
    }
    return orjson.dumps({**event.attributes, **place, **story}).decode()


def _partitions(events: Iterable[Event], partitions: int) -> list[int]:
    return [
        event.offset % partitions if event.key is None else partition_of_key(event.key, partitions)
        for event in events
    ]
