"""Payloads and attributes as JSON text, and what cannot be written so."""

import hashlib
import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any
from uuid import UUID

import orjson

from dagster_bus.core.event import Attribute
from dagster_bus.errors import InvalidEvent, InvalidPayloadError

LARGEST_INTEGER = (1 << 63) - 1


def _plain(value: Any) -> Any:
    """What the fast encoder takes besides plain data, for the other one."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} is no JSON value")


_EXACT = json.JSONEncoder(
    allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain
).encode
_PLAIN_ONLY = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def encode_payload(payload: Any) -> bytes:
    """Compact JSON text of a payload, in UTF-8, or InvalidPayloadError saying why there is none.

    The fast encoder does nearly all of them. It writes null for numbers that JSON does not have,
    and leaves out what the standard library takes: such payloads are left to that."""
    try:
        text = orjson.dumps(payload, None, _PLAIN_ONLY)
    except TypeError:
        return _encode_exactly(payload)
    if b"null" in text:
        _encode_exactly(payload)
    return text


def _encode_exactly(payload: Any) -> bytes:
    try:
        return _EXACT(payload).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayloadError(f"the payload is not JSON: {error}") from None


def verified_payload(payload: Any, digest: str | None) -> bytes:
    """A payload's text, which has the SHA-256 that its publisher says, if it says one.

    A number may be written in more than one way; the text that fits is the one that is kept."""
    text = encode_payload(payload)
    if digest is None:
        return text
    for candidate in (text, _encode_exactly(payload)):
        if hashlib.sha256(candidate).hexdigest() == digest:
            return candidate
    raise InvalidEvent(
        f"payload_sha256 is {digest!r}, and the payload's is "
        f"{hashlib.sha256(text).hexdigest()!r} (of its compact JSON text in UTF-8)"
    )


def encode_attributes(attributes: Mapping[str, Attribute] | None) -> str:
    """JSON text of an event's attributes, each a string, a number or a boolean."""
    if not isinstance(attributes, Mapping | None):
        raise InvalidEvent(f"attributes are names with values, and not {shown(attributes)}")
    if not attributes:
        return "{}"
    for name, value in attributes.items():
        if not isinstance(name, str) or "\0" in name:
            raise InvalidEvent(f"attribute names are text without NUL, and not {name!r}")
        if not _is_attribute(value):
            raise InvalidEvent(
                f"attribute {name!r} is {shown(value)}; allowed are text, booleans and finite "
                "numbers, whole ones of 64 bits"
            )
    try:
        return orjson.dumps(dict(attributes)).decode()
    except TypeError as error:
        raise InvalidEvent(f"the attributes cannot be written as JSON: {error}") from None


def _is_attribute(value: Any) -> bool:
    kind = type(value)
    if kind is str or kind is bool:
        return True
    if kind is int:
        return bool(-LARGEST_INTEGER <= value <= LARGEST_INTEGER)
    return kind is float and math.isfinite(value)


def require_text(field: str, text: object, most_bytes: int) -> str:
    """Refuse what is not text, what is too long, and lone surrogates, which no store can keep."""
    if not isinstance(text, str):
        raise InvalidEvent(f"{field} is text, not {type(text).__name__} ({shown(text)})")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"{field} is not valid Unicode text: {error.reason}") from None
    if "\0" in text:
        raise InvalidEvent(f"{field} has a NUL in it, which not every store can keep")
    if size > most_bytes:
        raise InvalidEvent(f"{field} has {size:,} bytes; at most {most_bytes:,} are allowed")
    return text


def shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a very large number"
    return text if len(text) <= 80 else f"{text[:79]}…"


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; what only some parsers take for JSON is refused."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at column {error.colno}"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    raise InvalidPayloadError(f"not JSON: {problem}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")
