"""The event: what a publisher hands in, what the log keeps, and where it was put."""

import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Self

Attribute = str | int | float | bool

Priority = Literal["critical", "high", "normal", "low"]

PRIORITIES: tuple[Priority, ...] = ("critical", "high", "normal", "low")
"""Most urgent first; an event keeps the number of its place here."""

NORMAL_PRIORITY = PRIORITIES.index("normal")


class Message(NamedTuple):
    """What a publisher says: a payload, and around it only what it wants to add."""

    payload: Any
    key: str | None = None
    source: str | None = None
    attributes: Mapping[str, Attribute] | None = None
    priority: Priority = "normal"
    idempotency_key: str | None = None
    ttl_s: int | None = None
    schema_version: int | None = None
    """The version that the payload is written in; the topic's present one if not said."""
    payload_sha256: str | None = None
    """Hexadecimal digest of the payload's compact JSON text in UTF-8; verified if given."""
    id: str | None = None
    ts: int | None = None
    """Id and time of an event that comes from another log. The time is kept as far as order in
    the partition allows, and never lies ahead of the clock."""
    partition: int | None = None
    """A partition to go to, whatever the key says."""


class Batch(NamedTuple):
    """Checked events of one topic on their way into the log, as columns of equal length.

    Partition, id and everything else is settled; offset and time are given by the store."""

    topic: str
    partitions: Sequence[int]
    ids: Sequence[str]
    keys: Sequence[str | None]
    sources: Sequence[str | None]
    schema_versions: Sequence[int]
    attributes: Sequence[str]
    priorities: Sequence[int]
    idempotency_keys: Sequence[str | None]
    ttls: Sequence[int | None]
    payloads: Sequence[str]
    payload_sha256s: Sequence[str | None]
    sizes: Sequence[int]
    """Bytes of key, attributes and payload: what counts for retention by size."""
    times: Sequence[int | None] | None = None
    """Times that events had in another log; None if all of them are new."""
    dedup_ms: int = 0
    """How far back a repeated idempotency key is recognised; 0 is not at all."""

    @property
    def length(self) -> int:
        return len(self.ids)

    def take(self, places: Sequence[int]) -> Self:
        """The events at some places only, in that order."""
        columns: dict[str, Any] = {
            name: [column[place] for place in places]
            for name, column in self._asdict().items()
            if name not in ("topic", "dedup_ms") and column is not None
        }
        return self._replace(**columns)


class Published(NamedTuple):
    """Where an accepted event stands in the log."""

    topic: str
    partition: int
    offset: int
    id: str
    ts: int
    duplicate: bool = False
    """The idempotency key was there before: this is the first event's place, nothing was added."""


class Event(NamedTuple):
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

    @property
    def size(self) -> int:
        """Bytes of key, attributes and payload."""
        text = self.payload_json + self.attributes_json + (self.key or "")
        return len(text) if text.isascii() else len(text.encode())

    def is_expired(self, now_ms: int) -> bool:
        return is_expired(self.ts, self.ttl_s, now_ms)


def is_expired(ts: int, ttl_s: int | None, now_ms: int) -> bool:
    """Whether an event's time to live is over. It stays in the log, and is not delivered."""
    return ttl_s is not None and ts + ttl_s * 1_000 <= now_ms


# Named tuples made from tuples directly: their own constructors take several times as long.
event_from_tuple = partial(tuple.__new__, Event)
published_from_tuple = partial(tuple.__new__, Published)
batch_from_tuple = partial(tuple.__new__, Batch)


def uuid7(now_ms: int) -> str:
    """A version 7 UUID: 48 bits of time, then random ones, so that ids sort by age."""
    return uuid7s(now_ms, 1)[0]


def uuid7s(now_ms: int, count: int) -> list[str]:
    """Version 7 UUIDs of one moment in ascending order: a random beginning, and counted on."""
    first = (now_ms & 0xFFFFFFFFFFFF) << 80 | _VERSION_7 | random.getrandbits(76) & _RANDOM_7
    if count == 1:
        text = f"{first:032x}"
        return [f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"]
    text = f"{first >> 48:020x}"
    head = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:]}-"
    tail = first & 0xFFFFFFFFFFFF
    return [f"{head}{number:012x}" for number in range(tail, tail + count)]


_VERSION_7 = 7 << 76 | 2 << 62
_RANDOM_7 = 0xFFF << 64 | 0x3FFF7FFFFFFFFFFF
"""The bits that are random. One of the last 48 is not, so that there is room to count on."""
