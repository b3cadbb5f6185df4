"""The event: what a publisher hands in, what the log keeps, and where it was put."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dagster_bus.errors import InvalidEvent, InvalidPayloadError

Attribute = str | int | float | bool

NORMAL_PRIORITY = 2
"""Priorities run from 0 (critical) to 3 (low)."""


_ENCODE = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


SCHEMA_VERSION = 1
"""The version of a payload whose topic declares none."""


class Message(NamedTuple):
    """What a publisher says: a payload, and around it only what it wants to add."""

    payload: Any
    key: str | None = None
    source: str | None = None
    attributes: Mapping[str, Attribute] | None = None


class NewEvent(NamedTuple):
    """A checked event on its way into the log; offset and time are given by the store."""

    topic: str
    partition: int
    id: str
    key: str | None
    source: str | None
    schema_version: int
    attributes: str
    priority: int
    idempotency_key: str | None
    ttl_s: int | None
    payload: str
    payload_sha256: str | None


class Published(NamedTuple):
    """Where an accepted event stands in the log."""

    topic: str
    partition: int
    offset: int
    id: str
    ts: int


@dataclass(frozen=True, slots=True)
class Event:
    """An event as the log keeps it. `payload` and `attributes` are JSON text until asked for."""

    id: str
    ts: int
    topic: str
    partition: int
    offset: int
    key: str | None
    source: str | None
    schema_version: int
    attributes_json: str
    priority: int
    idempotency_key: str | None
    ttl_s: int | None
    payload_json: str
    payload_sha256: str | None

    @property
    def payload(self) -> Any:
        return json.loads(self.payload_json)

    @property
    def attributes(self) -> dict[str, Attribute]:
        attributes: dict[str, Attribute] = json.loads(self.attributes_json)
        return attributes


def encode_payload(payload: Any) -> str:
    """JSON text of a payload, or InvalidPayloadError saying why there is none."""
    try:
        text = _ENCODE(payload)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayloadError(f"the payload is not JSON: {error}") from None
    return text


def encode_attributes(attributes: Mapping[str, Attribute] | None) -> str:
    """JSON text of an event's attributes, each a string, a number or a boolean."""
    if not attributes:
        return "{}"
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise InvalidEvent(f"attribute names are strings, not {type(name).__name__} ({name!r})")
        if not isinstance(value, str | int | float) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise InvalidEvent(
                f"attribute {name!r} is {value!r}; allowed are strings, finite numbers, booleans"
            )
    try:
        text = json.dumps(dict(attributes), ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:  # a whole number of thousands of digits
        raise InvalidEvent(f"the attributes cannot be written as JSON: {error}") from None
    require_text("attributes", text)
    return text


def require_text(field: str, text: object) -> None:
    """Refuse what is not text, and lone surrogates, which no store can keep."""
    if not isinstance(text, str):
        raise InvalidEvent(f"{field} is text, not {type(text).__name__} ({text!r})")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"{field} is not valid Unicode text: {error.reason}") from None


def uuid7(now_ms: int) -> str:
    """A version 7 UUID: 48 bits of time, then 74 random ones, so that ids sort by age."""
    return uuid7s(now_ms, 1)[0]


def uuid7s(now_ms: int, count: int) -> list[str]:
    """Version 7 UUIDs of one moment, with one call for their random bits."""
    time_part = f"{now_ms & 0xFFFFFFFFFFFF:012x}"
    head = f"{time_part[:8]}-{time_part[8:]}-7"
    dice = os.urandom(10 * count).hex()
    return [
        f"{head}{dice[at : at + 3]}-{_VARIANT[dice[at + 3]]}{dice[at + 4 : at + 7]}-"
        f"{dice[at + 7 : at + 19]}"
        for at in range(0, 20 * count, 20)
    ]


_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The two bits that tell a UUID's variant, before two of the random ones."""
