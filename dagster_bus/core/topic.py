"""Topics: names, patterns over names, positions in logs, and filters over attributes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from dagster_bus.core.event import Attribute
from dagster_bus.errors import InvalidTopicName

RESERVED_PREFIXES = ("bus", "system")
_RESERVED = tuple(f"{prefix}." for prefix in RESERVED_PREFIXES)

_SEGMENT = r"[a-z0-9-]+"
_NAME = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})*")
_PATTERN = re.compile(rf"(?:{_SEGMENT}|\*\*?)(?:\.(?:{_SEGMENT}|\*\*?))*")


LAST_OFFSET = (1 << 40) - 1
"""No partition holds more events; stores may rely on it."""


MIB = 1 << 20

SchemaKind = Literal["fields", "json_schema", "model"]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Events `first` to `last` of one partition, both included."""

    topic: str
    partition: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}:{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a payload's schema, as plain data that a store can keep.

    `definition` is a mapping of column names to types (fields), a JSON Schema document
    (json_schema), or an import path, module:Class, of a pydantic model (model)."""

    kind: SchemaKind
    definition: Any


@dataclass(frozen=True, slots=True)
class SchemaConfig:
    """What payloads of a topic look like, and what happens to those that do not."""

    versions: Mapping[int, SchemaVersion]
    current: int
    strict: bool = False
    """Refuse what does not fit; otherwise it passes with a warning."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's rules, as declared."""

    name: str
    partitions: int = 1
    durable: bool = True
    """False: the topic lives in the memory of one process and ends with it."""
    schema: SchemaConfig | None = None
    dedup_ms: int = 600_000
    """For how long a repeated idempotency key is recognised; 0 turns that off."""
    max_payload_bytes: int = MIB
    max_key_bytes: int = MIB
    retain_ms: int | None = None
    retain_bytes: int | None = None
    compacted: bool = False
    """Only the newest event of each key is kept; one with a null payload deletes its key."""
    tombstone_ms: int = 86_400_000
    """How long readers can see that a key was deleted."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Lets an event pass when its attributes equal, type included, and exist, as asked, and its
    key is one of those asked for, if any are."""

    equals: Mapping[str, Attribute] = field(default_factory=dict)
    exists: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.equals or self.exists or self.keys)

    def matches(self, attributes: Mapping[str, Attribute], key: str | None = None) -> bool:
        if self.keys and key not in self.keys:
            return False
        return all(
            name in attributes
            and type(attributes[name]) is type(wanted)
            and attributes[name] == wanted
            for name, wanted in self.equals.items()
        ) and all(name in attributes for name in self.exists)


def require_topic_name(name: str) -> None:
    """Refuse a name that does not follow the rules, or that belongs to the bus."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTopicName(
            f"{name!r} is not a topic name: use segments of a-z, 0-9 and '-' joined by dots, "
            "such as orders.created"
        )
    if is_reserved(name):
        raise InvalidTopicName(
            f"{name!r} is reserved: names beginning with "
            + " or ".join(f"'{prefix}.'" for prefix in RESERVED_PREFIXES)
            + " belong to the bus itself"
        )


def require_pattern(pattern: str) -> None:
    """Refuse a pattern whose segments are neither names nor '*' nor '**'."""
    if not _PATTERN.fullmatch(pattern):
        raise InvalidTopicName(
            f"{pattern!r} is not a topic pattern: join segments of a-z, 0-9 and '-' by dots; "
            "'*' stands for one segment, '**' for any number"
        )


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern selects, in their order. Those that belong to the bus are selected
    by a pattern that says so in its first segment, and by no wildcard."""
    if "*" not in pattern:
        known = names if isinstance(names, Mapping) else [*names]
        return [pattern] if pattern in known else []
    begins = pattern.split(".", 1)[0]
    if begins not in RESERVED_PREFIXES:
        names = [name for name in names if not is_reserved(name)]
    if pattern == "*":  # on its own a star means everything
        return list(names)
    expression = _compiled(pattern)
    return [name for name in names if expression.fullmatch(name)]


def is_reserved(name: str) -> bool:
    """Whether a topic's name is one of those that belong to the bus."""
    return name.startswith(_RESERVED) or name in RESERVED_PREFIXES


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as an expression over '.'-terminated segments, so that '**' may match none."""
    parts = []
    for segment in pattern.split("."):
        if segment == "**":
            parts.append(rf"(?:(?:^|\.){_SEGMENT})*")
        else:
            parts.append(rf"(?:^|\.){_SEGMENT if segment == '*' else re.escape(segment)}")
    return re.compile("".join(parts))
