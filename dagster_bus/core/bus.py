"""The bus: publish to topics, read them, and reach the groups and their dead letters."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dagster_bus.core.clock import Clock, system_clock
from dagster_bus.core.closing import Closing
from dagster_bus.core.event import (
    NORMAL_PRIORITY,
    SCHEMA_VERSION,
    Attribute,
    Event,
    Message,
    NewEvent,
    Published,
    encode_attributes,
    encode_payload,
    require_text,
    uuid7s,
)
from dagster_bus.core.groups import Group, GroupConfig
from dagster_bus.core.partitioner import Partitioner
from dagster_bus.core.store import DeadLetter, Store
from dagster_bus.core.topic import LAST_OFFSET, OffsetRange, TopicConfig
from dagster_bus.core.window import FIRST_WINDOW, FIRST_WINDOW_MS
from dagster_bus.errors import BusClosedError, BusError, UnknownGroup, UnknownTopic, UsageError


class Bus(Closing):
    """Topics and groups on one store. Safe to share between threads; open one in each process."""

    def __init__(
        self,
        store: Store,
        topics: Iterable[TopicConfig],
        groups: Iterable[GroupConfig] = (),
        clock: Clock = system_clock,
    ) -> None:
        self._store = store
        self._topics = {topic.name: topic for topic in topics}
        self._groups = {group.name: group for group in groups}
        self._clock = clock
        self._partitioner = Partitioner()
        self._closed = False

    @property
    def topics(self) -> tuple[TopicConfig, ...]:
        return tuple(self._topics.values())

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        source: str | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Published:
        """Append one event, and return where it stands once it would survive a power cut."""
        return self.publish_many(topic, [Message(payload, key, source, attributes)])[0]

    def publish_many(self, topic: str, messages: Iterable[Message | Any]) -> list[Published]:
        """Append events together: all of them, or none. Whatever is not a Message is a payload."""
        config = self._topic(topic)
        now_ms = self._clock()
        if now_ms < FIRST_WINDOW_MS:
            raise BusError(
                f"this machine's clock is wrong: it says {now_ms} ms since 1970, which is before "
                f"{FIRST_WINDOW:%Y-%m-%d}. Set it, and publish again"
            )
        given = list(messages)
        ids = uuid7s(now_ms, len(given))
        events = [self._checked(config, *pair) for pair in zip(given, ids, strict=True)]
        return self._store.append(events, now_ms) if events else []

    def read(self, topic: str, partition: int, first: int = 1) -> Iterator[Event]:
        """The events of a partition from an offset to its present end, in order."""
        config = self._topic(topic)
        if not 0 <= partition < config.partitions:
            raise UnknownTopic(
                f"{topic} has partitions 0 to {config.partitions - 1}, and no {partition}"
            )
        if not 1 <= first <= LAST_OFFSET:
            raise UsageError(f"{first} is not an offset; they begin with 1")
        return self._store.iterate(OffsetRange(topic, partition, first, LAST_OFFSET))

    def group(self, name: str) -> Group:
        """A declared group."""
        self._require_open()
        config = self._groups.get(name)
        if config is None:
            known = ", ".join(sorted(self._groups)) or "none"
            raise UnknownGroup(f"group {name!r} is not declared (declared: {known})")
        return Group(config, self._store, self._clock)

    def dead_letters(
        self, group: str, *, limit: int = 100, before: int | None = None
    ) -> list[DeadLetter]:
        """What a group gave up on, newest first."""
        self.group(group)
        return self._store.dead_letters(group, limit=limit, before=before)

    def dead_letter_counts(self, group: str) -> dict[str, int]:
        """How many dead letters a group has, by error fingerprint."""
        self.group(group)
        return self._store.dead_letter_counts(group)

    def close(self) -> None:
        """Let go of the store. Harmless when repeated."""
        self._closed = True
        self._store.close()

    def _topic(self, name: str) -> TopicConfig:
        self._require_open()
        config = self._topics.get(name)
        if config is None:
            known = ", ".join(sorted(self._topics)) or "none"
            raise UnknownTopic(f"topic {name!r} is not declared (declared: {known})")
        return config

    def _require_open(self) -> None:
        if self._closed:
            raise BusClosedError("this bus was closed; open another one")

    def _checked(self, config: TopicConfig, message: Message | Any, id: str) -> NewEvent:
        if type(message) is not Message:
            message = Message(message)
        payload, key, source, attributes = message
        if key is not None:
            require_text("key", key)
        if source is not None:
            require_text("source", source)
        return NewEvent(
            config.name,
            self._partitioner.choose(key, config.partitions),
            id,
            key,
            source,
            SCHEMA_VERSION,
            encode_attributes(attributes),
            NORMAL_PRIORITY,
            None,
            None,
            encode_payload(payload),
            None,
        )
