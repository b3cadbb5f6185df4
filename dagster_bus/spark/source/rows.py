"""From the rows of a DataFrame to messages."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import MapType, StringType, StructType

from dagster_bus.core.encoding import encode_payload
from dagster_bus.core.event import PRIORITIES, Message
from dagster_bus.errors import InvalidEvent, InvalidPayloadError, UsageError
from dagster_bus.spark.source.columns import ENVELOPE
from dagster_bus.spark.source.options import Options

FIELDS = {
    "payload": "payloadColumn",
    "key": "keyColumn",
    "attributes": "attributesColumn",
    "idempotency_key": "idempotencyKeyColumn",
    "priority": "priorityColumn",
}
"""What a column can be for, and the option that names it; by default it is called so itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns are what."""

    payload: str | None
    """The column with the payload; without one, all others together are the payload."""
    others: tuple[str, ...]
    key: str | None = None
    attributes: str | None = None
    idempotency_key: str | None = None
    priority: str | None = None
    payload_is_text: bool = True


def layout(schema: StructType, options: Options) -> Layout:
    """Raises UsageError if the columns do not say what to publish."""
    types = {field.name: field.dataType for field in schema.fields}
    found: dict[str, str | None] = {}
    for field, option in FIELDS.items():
        name = options.text(option, field)
        if options.has(option) and name not in types:
            raise UsageError(f"option {option}: there is no column {name!r}")
        found[field] = name if name in types else None
    _require_types(types, found)
    others = tuple(name for name in types if name not in found.values())
    payload = found["payload"]
    if payload is None and not others:
        raise UsageError("no column is left for the payload: name one, or add the columns it has")
    if payload is not None and (lost := [name for name in others if name not in ENVELOPE]):
        raise UsageError(
            f"the columns {', '.join(lost)} would be lost, as {payload!r} is the whole payload: "
            f"drop them, or drop {payload!r} so that the columns become the payload"
        )
    is_text = payload is not None and isinstance(types[payload], StringType)
    return Layout(others=others, payload_is_text=is_text, **found)


def _require_types(types: Mapping[str, Any], found: Mapping[str, str | None]) -> None:
    for field in ("key", "idempotency_key"):
        name = found[field]
        if name is not None and not isinstance(types[name], StringType):
            raise UsageError(
                f"column {name!r} is the {field} and of type {types[name].simpleString()}: cast it "
                "to string"
            )
    name = found["attributes"]
    if name is not None and not isinstance(types[name], StringType | MapType):
        raise UsageError(
            f"column {name!r} has the attributes and is of type {types[name].simpleString()}: make "
            "it a map or JSON text"
        )


def messages(batch: pa.RecordBatch, chosen: Layout, source: str | None) -> Iterator[Message]:
    """The messages of a batch of rows, in order."""
    size = batch.num_rows
    nothing = [None] * size
    column = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    keys = column[chosen.key] if chosen.key else nothing
    own = column[chosen.idempotency_key] if chosen.idempotency_key else nothing
    attributes = column[chosen.attributes] if chosen.attributes else nothing
    priorities = column[chosen.priority] if chosen.priority else nothing
    payloads: Iterable[Any]
    if chosen.payload:
        payloads = column[chosen.payload]
        read = _parsed if chosen.payload_is_text else _plain
    else:
        payloads = _objects({name: column[name] for name in chosen.others}, size)
        read = _plain
    rows = zip(payloads, keys, attributes, priorities, own, strict=True)
    for payload, key, attribute, priority, idempotency_key in rows:
        yield Message(
            payload=read(payload),
            key=key,
            source=source,
            attributes=_attributes(attribute),
            priority=_priority(priority),
            idempotency_key=idempotency_key,
        )


def said(message: Message) -> tuple[str | None, ...]:
    """All that a message says, as text."""
    attributes = message.attributes and json.dumps(message.attributes, sort_keys=True)
    payload = encode_payload(message.payload).decode()
    return message.key, payload, attributes or None, message.priority


def _objects(columns: Mapping[str, Sequence[Any]], size: int) -> Iterator[dict[str, Any]]:
    """The columns of each row that are not null, by name."""
    for row in range(size):
        values = ((name, column[row]) for name, column in columns.items())
        yield {name: value for name, value in values if value is not None}


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidPayloadError(f"the payload is not JSON: {error}") from None


def _plain(value: Any) -> Any:
    """A column's value as JSON has it: exact numbers and times as text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {str(key): _plain(each) for key, each in value}  # Arrow's way to write a map
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        text = value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _attributes(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return None if value is None else {name: each for name, each in value if each is not None}
    try:
        return json.loads(value)
    except ValueError as error:
        raise InvalidEvent(f"the attributes are not JSON: {error}") from None


def _priority(value: Any) -> Any:
    """A name, or the number that events have when they are read."""
    if value is None:
        return "normal"
    if type(value) is int and 0 <= value < len(PRIORITIES):
        return PRIORITIES[value]
    return value
