"""From what publishers say to a batch for the log: every field is checked, nothing is written.

Messages are turned into columns, and columns are checked one after the other: most of them are
empty, and a loop over one kind of value is fast.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from dagster_bus.core.encoding import (
    encode_attributes,
    encode_payload,
    require_text,
    shown,
    verified_payload,
)
from dagster_bus.core.event import (
    NORMAL_PRIORITY,
    PRIORITIES,
    Attribute,
    Batch,
    Message,
    batch_from_tuple,
    uuid7s,
)
from dagster_bus.core.partitioner import Partitioner
from dagster_bus.core.topic import TopicConfig
from dagster_bus.core.window import FIRST_WINDOW_MS
from dagster_bus.errors import InvalidEvent, InvalidPayloadError, UsageError

MAX_ID_BYTES = 256
LARGEST_SMALL_NUMBER = (1 << 31) - 1
UNDECLARED_VERSION = 1
"""The schema version of an event whose topic has no schema and whose publisher names none."""

_NOTHING_ELSE: tuple[Any, ...] = Message(None)[1:]

T = TypeVar("T")
R = TypeVar("R")


class PayloadSchema(Protocol):
    """A topic's schema, ready to check payloads."""

    strict: bool
    current: int

    def problems_in(self, payloads: Sequence[Any], versions: Sequence[int]) -> dict[int, str]:
        """What is wrong with those payloads that do not fit, by their place."""


class _Columns(NamedTuple):
    """The fields of `Message`, each of all messages."""

    payload: Sequence[Any]
    key: Sequence[str | None]
    source: Sequence[str | None]
    attributes: Sequence[Mapping[str, Attribute] | None]
    priority: Sequence[str]
    idempotency_key: Sequence[str | None]
    ttl_s: Sequence[int | None]
    schema_version: Sequence[int | None]
    payload_sha256: Sequence[str | None]
    id: Sequence[str | None]
    ts: Sequence[int | None]
    partition: Sequence[int | None]


def check_messages(
    messages: Sequence[Message | Any],
    config: TopicConfig,
    current_version: int,
    partitioner: Partitioner,
    now_ms: int,
) -> tuple[Batch, Sequence[Any]]:
    """A batch, and the payloads it was made from. Whatever is not a Message is a payload."""
    kinds = set(map(type, messages))
    if Message not in kinds:
        return _bare(messages, config, current_version, partitioner, now_ms), messages
    if len(kinds) > 1:
        messages = [each if type(each) is Message else Message(each) for each in messages]
    if len(messages) == 1 and messages[0][1:] == _NOTHING_ELSE:
        payloads = (messages[0].payload,)
        return _bare(payloads, config, current_version, partitioner, now_ms), payloads
    said = _Columns(*zip(*messages, strict=True))
    return _full(said, config, current_version, partitioner, now_ms), said.payload


def _bare(
    payloads: Sequence[Any],
    config: TopicConfig,
    current_version: int,
    partitioner: Partitioner,
    now_ms: int,
) -> Batch:
    """A batch of payloads with nothing around them: the usual case, and the fastest."""
    count = len(payloads)
    try:
        encoded = list(map(encode_payload, payloads))
    except UsageError:
        encoded = _each(payloads, encode_payload, keep_none=False)  # tells which one it was
    _require_small(encoded, config.max_payload_bytes)
    nothing = [None] * count
    columns = (
        config.name,
        partitioner.choose(nothing, config.partitions),
        uuid7s(now_ms, count),
        nothing,  # keys
        nothing,  # sources
        [current_version] * count,
        ["{}"] * count,  # attributes
        [NORMAL_PRIORITY] * count,
        nothing,  # idempotency keys
        nothing,  # ttls
        list(map(bytes.decode, encoded)),
        nothing,  # digests
        [len(text) + 2 for text in encoded],
        None,  # times
        config.dedup_ms,
    )
    return batch_from_tuple(columns)


def _full(
    said: _Columns,
    config: TopicConfig,
    current_version: int,
    partitioner: Partitioner,
    now_ms: int,
) -> Batch:
    """A batch of messages, each of whose fields is looked at."""
    short = _text_of(config.max_key_bytes)
    digests = _each(said.payload_sha256, _digest)
    encoded = _encoded(said.payload, digests)
    _require_small(encoded, config.max_payload_bytes)
    attributes = _each(said.attributes, encode_attributes, "{}")
    _each(attributes, _text_of(config.max_payload_bytes)("attributes"))
    keys = _each(said.key, short("key"))
    return Batch(
        topic=config.name,
        partitions=_partitions(said.partition, keys, config, partitioner),
        ids=_ids(said.id, now_ms),
        keys=keys,
        sources=_each(said.source, short("source")),
        schema_versions=_each(said.schema_version, _version, current_version),
        attributes=attributes,
        priorities=_priorities(said.priority),
        idempotency_keys=_each(said.idempotency_key, short("idempotency_key")),
        ttls=_each(said.ttl_s, _ttl),
        payloads=[text.decode() for text in encoded],
        payload_sha256s=digests,
        sizes=_sizes(keys, attributes, encoded),
        times=_each(said.ts, _time) if said.ts.count(None) < len(said.ts) else None,
        dedup_ms=config.dedup_ms,
    )


def _encoded(payloads: Sequence[Any], digests: Sequence[str | None]) -> list[bytes]:
    if digests.count(None) == len(digests):
        return _each(payloads, encode_payload, keep_none=False)
    pairs = list(zip(payloads, digests, strict=True))
    return _each(pairs, lambda pair: verified_payload(*pair))


def _require_small(encoded: Sequence[bytes], most_bytes: int) -> None:
    if max(map(len, encoded)) > most_bytes:
        _each(encoded, lambda text: _require_size(text, most_bytes))


def _require_size(text: bytes, most_bytes: int) -> None:
    if len(text) > most_bytes:
        raise InvalidPayloadError(
            f"the payload has {len(text):,} bytes; the topic takes {most_bytes:,} at most "
            "(limits.payload). Put the data elsewhere and publish its address, or raise the limit"
        )


def _sizes(
    keys: Sequence[str | None], attributes: Sequence[str], encoded: Sequence[bytes]
) -> list[int]:
    parts = zip(keys, attributes, encoded, strict=True)
    return [len((key or "").encode()) + len(more.encode()) + len(text) for key, more, text in parts]


def _partitions(
    given: Sequence[int | None],
    keys: Sequence[str | None],
    config: TopicConfig,
    partitioner: Partitioner,
) -> list[int]:
    chosen = partitioner.choose(keys, config.partitions)
    if given.count(None) == len(given):
        return chosen

    def check(number: int) -> int:
        if type(number) is not int or not 0 <= number < config.partitions:
            raise InvalidEvent(
                f"{config.name} has partitions 0 to {config.partitions - 1}, not {shown(number)}"
            )
        return number

    own = _each(given, check)
    return [here if at is None else at for at, here in zip(own, chosen, strict=True)]


def _ids(given: Sequence[str | None], now_ms: int) -> list[str]:
    made = uuid7s(now_ms, len(given))
    if given.count(None) == len(given):
        return made
    checked = _each(given, _text_of(MAX_ID_BYTES)("id"))
    return [own or fresh for own, fresh in zip(checked, made, strict=True)]


def _each(
    column: Sequence[T | None],
    check: Callable[[T], R],
    default: Any = None,
    *,
    keep_none: bool = True,
) -> list[Any]:
    """A column checked value by value; what is not there becomes the default. A mistake is told
    with the number of its message if there are several."""
    if keep_none and column.count(None) == len(column):
        return [default] * len(column)
    checked: list[Any] = []
    add = checked.append
    try:
        for value in column:
            add(default if value is None and keep_none else check(value))  # type: ignore[arg-type]
    except UsageError as error:
        if len(column) == 1:
            raise
        raise error.of_message(len(checked), len(column)) from None
    return checked


def _text_of(most_bytes: int) -> Callable[[str], Callable[[str], str]]:
    """Checks of texts by the name of their field."""
    return lambda field: lambda text: require_text(field, text, most_bytes)


def _whole_number(field: str, number: int, least: int) -> int:
    if type(number) is not int or not least <= number <= LARGEST_SMALL_NUMBER:
        raise InvalidEvent(f"{field} is a whole number from {least} on, and not {shown(number)}")
    return number


def _version(number: int) -> int:
    return _whole_number("schema_version", number, 1)


def _ttl(number: int) -> int:
    return _whole_number("ttl_s", number, 0)


def _time(ms: int) -> int:
    if type(ms) is not int or ms < 0:
        raise InvalidEvent(f"ts is a time in whole milliseconds since 1970, and not {shown(ms)}")
    return max(ms, FIRST_WINDOW_MS)


def _digest(text: str) -> str:
    return require_text("payload_sha256", text, MAX_ID_BYTES).lower()


def _priorities(names: Sequence[str]) -> list[int]:
    if names.count("normal") == len(names):
        return [NORMAL_PRIORITY] * len(names)
    return _each(names, _priority, NORMAL_PRIORITY)


def _priority(name: str) -> int:
    if name not in PRIORITIES:
        raise InvalidEvent(f"priority is one of {', '.join(PRIORITIES)}, and not {name!r}")
    return PRIORITIES.index(name)
