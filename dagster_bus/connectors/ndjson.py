"""Events as lines of JSON, one event a line, and back without loss.

A line has `event_id`, `ts` (milliseconds since 1970, or ISO 8601), `topic`, `payload`, and where
there is something to say `scope` (the attribute of that name), `actor` (the source), `ttl_s`,
`idempotency_key`, `key`, `partition`, `offset`, `attributes`, `priority`, `schema_version` and
`payload_sha256`.
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from dagster_bus.core.encoding import parse_json
from dagster_bus.core.event import PRIORITIES, Event, Message
from dagster_bus.errors import InvalidEvent

SCOPE = "scope"
KNOWN = {
    *("event_id", "ts", "topic", "scope", "actor", "payload", "ttl_s", "idempotency_key", "key"),
    *("partition", "offset", "attributes", "priority", "schema_version", "payload_sha256"),
}


class Line(NamedTuple):
    """What a line says: a message, and the topic it belongs to."""

    topic: str
    message: Message


def to_line(event: Event) -> bytes:
    """An event as a line, without its end. The payload's text is taken over as it is."""
    attributes = event.attributes
    scope = attributes.get(SCOPE)
    if isinstance(scope, str):
        del attributes[SCOPE]
    optional = {
        "scope": scope if isinstance(scope, str) else None,
        "actor": event.source,
        "key": event.key,
        "ttl_s": event.ttl_s,
        "idempotency_key": event.idempotency_key,
        "payload_sha256": event.payload_sha256,
        "attributes": attributes or None,
    }
    said = {
        "event_id": event.id,
        "ts": event.ts,
        "topic": event.topic,
        "partition": event.partition,
        "offset": event.offset,
        "schema_version": event.schema_version,
        "priority": PRIORITIES[event.priority],
        **{name: value for name, value in optional.items() if value is not None},
        "payload": orjson.Fragment(event.payload_json),
    }
    return orjson.dumps(said)


def from_line(text: bytes, topic: str | None = None) -> Line:
    """What a line says. Raises InvalidEvent or InvalidPayloadError saying what is wrong with it.

    `topic` goes before the one that the line names; partitions and offsets are those of a log and
    are only kept within the topic they come from."""
    data = parse_json(text)
    if not isinstance(data, dict):
        raise InvalidEvent("a line is a JSON object with at least `topic` and `payload`")
    unknown = sorted(data.keys() - KNOWN)
    if unknown:
        raise InvalidEvent(f"unknown field {unknown[0]!r} (known: {', '.join(sorted(KNOWN))})")
    if "payload" not in data:
        raise InvalidEvent("the field 'payload' is missing")
    named = data.get("topic") if topic is None else topic
    if not isinstance(named, str):
        raise InvalidEvent("the field 'topic' is missing: name a topic for all lines, or in each")
    return Line(named, _message(data, keep_place=topic is None))


def _message(data: dict[str, Any], *, keep_place: bool) -> Message:
    attributes = data.get("attributes")
    if attributes is None:
        attributes = {}
    if not isinstance(attributes, dict):
        raise InvalidEvent("the field 'attributes' is an object of names and values")
    if data.get("scope") is not None:
        attributes = {SCOPE: data["scope"], **attributes}
    return Message(
        payload=data["payload"],
        key=data.get("key"),
        source=data.get("actor"),
        attributes=attributes,
        priority="normal" if data.get("priority") is None else data["priority"],
        idempotency_key=data.get("idempotency_key"),
        ttl_s=data.get("ttl_s"),
        schema_version=data.get("schema_version"),
        payload_sha256=data.get("payload_sha256"),
        id=data.get("event_id"),
        ts=_milliseconds(data.get("ts")),
        partition=data.get("partition") if keep_place else None,
    )


def _milliseconds(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return milliseconds(value)
    raise InvalidEvent(f"the field 'ts' is milliseconds since 1970 or an ISO 8601 time: {value!r}")


def milliseconds(text: str) -> int:
    """An ISO 8601 time, in UTC unless it says otherwise. Raises ValueError if it is none."""
    time = datetime.fromisoformat(text)
    return int(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000)
