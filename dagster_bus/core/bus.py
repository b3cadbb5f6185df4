"""The bus: publish to topics, read them, and reach the groups and their dead letters."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagster_bus.core import tailing
from dagster_bus.core.appending import Appender
from dagster_bus.core.auditing import audited
from dagster_bus.core.checking import UNDECLARED_VERSION, PayloadSchema, check_messages
from dagster_bus.core.clock import Clock, system_clock
from dagster_bus.core.closing import Closing
from dagster_bus.core.event import Attribute, Batch, Event, Message, Priority, Published, uuid7
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import DeadLetters
from dagster_bus.core.maintenance import Maintained, maintain
from dagster_bus.core.mirroring import mirrors_among
from dagster_bus.core.partitioner import Partitioner
from dagster_bus.core.position import AtOffset, Start, first_offsets
from dagster_bus.core.replaying import SEPARATOR, open_replay, replay_config, replays_of
from dagster_bus.core.reporting import Moment
from dagster_bus.core.schema_check import SchemaCheck
from dagster_bus.core.store import Bounds, Store
from dagster_bus.core.system import AUDIT, is_system_topic
from dagster_bus.core.topic import (
    EventFilter,
    OffsetRange,
    SchemaConfig,
    TopicConfig,
    TopicPartition,
    is_reserved,
    matching,
    require_pattern,
    require_topic_name,
)
from dagster_bus.core.window import FIRST_WINDOW, FIRST_WINDOW_MS
from dagster_bus.errors import BusClosedError, BusError, UnknownGroup, UnknownTopic, UsageError

EVERYTHING = "**"
STREAM_BATCH = 1_000

MEMORY_BYTES = 16 << 20
"""A topic in memory keeps so many bytes; it is looked at each time that a quarter was added."""


class Bus(Closing):
    """Topics and groups on one store. Safe to share between threads; open one in each process.

    Topics that are not durable live in a second store, in this process's memory."""

    def __init__(
        self,
        store: Store,
        topics: Iterable[TopicConfig],
        groups: Iterable[GroupConfig] | None = (),
        clock: Clock = system_clock,
        *,
        compile_schema: Callable[[SchemaConfig], PayloadSchema] | None = None,
        memory: Store | None = None,
    ) -> None:
        self._topics = {topic.name: topic for topic in topics}
        self._plain_store = store
        if AUDIT in self._topics:
            store = audited(store, clock)
        self._store = store
        self._groups = {group.name: group for group in groups or ()}
        self._knows_groups = groups is not None
        self._mirrors = mirrors_among(self._topics)
        self._clock = clock
        self._partitioner = Partitioner()
        self._compile_schema = compile_schema
        self._schemas: dict[str, SchemaCheck] = {}
        self._durable = Appender(store, self._now_ms)
        self._memory = Appender(memory, self._now_ms) if memory is not None else None
        self._in_memory: dict[str, int] = {}
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
        priority: Priority = "normal",
        idempotency_key: str | None = None,
        ttl_s: int | None = None,
        schema_version: int | None = None,
        payload_sha256: str | None = None,
    ) -> Published:
        """Append one event, and return where it stands once it would survive a power cut."""
        message = Message(
            payload,
            key,
            source,
            attributes,
            priority,
            idempotency_key,
            ttl_s,
            schema_version,
            payload_sha256,
        )
        return self.publish_many(topic, [message])[0]

    def publish_many(self, topic: str, messages: Iterable[Message | Any]) -> list[Published]:
        """Append events together: all of them, or none. Whatever is not a Message is a payload."""
        config = self._topic(topic)
        if is_reserved(topic):
            require_topic_name(topic)
        if type(messages) is list:
            given = messages
        elif isinstance(messages, str | bytes | Mapping):
            raise UsageError(f"publish_many takes many messages, and not one {type(messages)}")
        else:
            given = list(messages)
        if not given:
            return []
        batch = self._checked(config, given)
        published = self._log_of(config).append(batch)
        if not config.durable:
            self._bound_memory(config, sum(batch.sizes))
        return published

    def publish_stream(
        self, topic: str, messages: Iterable[Message | Any], batch_size: int = STREAM_BATCH
    ) -> Iterator[list[Published]]:
        """Append events as they come, in batches, and yield where those of each batch stand.

        Holds one batch at a time in memory. If a batch cannot be appended, those before it are."""
        if batch_size < 1:
            raise UsageError(f"a batch has at least one message, and not {batch_size}")
        batch: list[Message | Any] = []
        for message in messages:
            batch.append(message)
            if len(batch) == batch_size:
                yield self.publish_many(topic, batch)
                batch = []
        if batch:
            yield self.publish_many(topic, batch)

    def read(
        self, topic: str, partition: int = 0, first: int | None = None, last: int | None = None
    ) -> Iterator[Event]:
        """The events of a partition in order, from an offset, or its beginning, to an offset, or
        its present end. Raises OffsetTrimmed if the log begins later than asked."""
        config = self._topic(topic)
        if not 0 <= partition < config.partitions:
            raise UnknownTopic(
                f"{topic} has partitions 0 to {config.partitions - 1}, and no {partition}"
            )
        store = self._log_of(config).store
        at = TopicPartition(topic, partition)
        bounds = store.bounds([topic])[at]
        start: Start = "earliest" if first is None else AtOffset(first)
        begin = first_offsets(start, store, {at: bounds})[at]
        end = bounds.end - 1 if last is None else min(last, bounds.end - 1)
        return store.iterate(OffsetRange(topic, partition, begin, end))

    def tail(
        self,
        *patterns: str,
        start: Start = "earliest",
        wanted: EventFilter | None = None,
        key: str | None = None,
        follow: bool = False,
        go_on: Callable[[], bool] = lambda: True,
    ) -> Iterator[Event]:
        """Events of all topics that the patterns select, in the order of time.

        Ends with what is there now; or goes on as events come, if it is to follow, for as long as
        `go_on` returns true, which is asked every second."""
        names = self.select(*patterns)
        logs = {self._log_of(self._topics[name]) for name in names}
        if len(logs) > 1:
            raise UsageError("durable topics and topics in memory cannot be read together")
        store = logs.pop().store
        if follow:
            events = tailing.follow(store, names, start, self._while_open(go_on))
        else:
            events = tailing.read_all(store, names, start)
        wanted = wanted or EventFilter()
        for event in events:
            if (key is None or event.key == key) and (
                not wanted or wanted.matches(event.attributes)
            ):
                yield event

    def select(self, *patterns: str) -> list[str]:
        """The topics that patterns, or names, select; all without any."""
        self._require_open()
        chosen: dict[str, None] = {}
        for pattern in patterns or (EVERYTHING,):
            require_pattern(pattern)
            found = matching(pattern, self._topics)
            if not found:
                raise self._unknown(pattern)
            chosen.update(dict.fromkeys(found))
        return list(chosen)

    def bounds(self, *topics: str) -> dict[TopicPartition, Bounds]:
        """What the partitions of topics hold; of all topics if none is named."""
        found: dict[TopicPartition, Bounds] = {}
        configs = [self._topic(name) for name in topics or self._topics]
        for log in {self._log_of(each) for each in configs}:
            names = [each.name for each in configs if self._log_of(each) is log]
            found.update(log.store.bounds(names))
        return found

    def maintain(self, *topics: str) -> list[Maintained]:
        """Apply retention and compaction to topics, or to all. Safe while others read and write.

        Needs the file that declares the groups: what they have not settled must stay."""
        if not self._knows_groups:
            raise UsageError(
                "this bus was opened by its store's address and does not know which groups still "
                "need events: open it by its topics.yaml"
            )
        configs = [self._topic(name) for name in topics or self._topics]
        return [self._maintain(config) for config in configs]

    def group(self, name: str) -> Group:
        """A declared group, or one of its replays, as `GROUP~NAME`."""
        self._require_open()
        declared, is_replay, replay = name.partition(SEPARATOR)
        config = self._groups.get(declared)
        if config is None:
            known = ", ".join(sorted(self._groups)) or "none"
            raise UnknownGroup(f"group {declared!r} is not declared (declared: {known})")
        if is_replay:
            config = replay_config(config, replay)
        return Group(
            replace(config, mirrors=self._mirrors),
            self._store_of(config.topics),
            self._clock,
            prepare=self._prepare,
        )

    def replay(
        self,
        group: str,
        name: str,
        *,
        start: Start = "earliest",
        end: Start = "latest",
        partitions: Iterable[TopicPartition] | None = None,
    ) -> Group:
        """Freeze the events between two places under a name, to be gone through again beside the
        live group, whose cursors do not move. Returns what works them off, as a group of its own.
        """
        live = self.group(group)
        now_ms = self._clock()
        moment = Moment(now_ms, random.random, lambda: uuid7(now_ms))
        store = self._store_of(live.config.topics)
        config = open_replay(
            live.config, store, moment, name, start=start, end=end, partitions=partitions
        )
        return Group(config, store, self._clock)

    def replays(self, group: str) -> dict[str, Group]:
        """The replays of a group by name, whether they are done or not."""
        live = self.group(group)
        return {
            name: Group(
                replay_config(live.config, name), self._store_of(live.config.topics), self._clock
            )
            for name in replays_of(group, self._store.groups())
        }

    def dead_letters(self, group: str) -> DeadLetters:
        """The inspector of what a group gave up on."""
        config = self.group(group).config
        return DeadLetters(
            group,
            self._store_of(config.topics),
            self._clock,
            max_events=config.max_events,
            windows=config.windows,
            check_payload=self._check_payload,
        )

    def close(self) -> None:
        """Let go of the store. Harmless when repeated."""
        self._closed = True
        self._store.close()
        if self._memory is not None:
            self._memory.store.close()

    def _store_of(self, topics: Iterable[str]) -> Store:
        """The store as a group of some topics uses it. What a group does that reads what the bus
        tells of itself is not told again: it would never end."""
        return self._plain_store if any(map(is_system_topic, topics)) else self._store

    def _topic(self, name: str) -> TopicConfig:
        self._require_open()
        config = self._topics.get(name)
        if config is None:
            require_topic_name(name)
            raise self._unknown(name)
        return config

    def _unknown(self, name: str) -> UnknownTopic:
        known = ", ".join(sorted(self._topics)) or "none"
        return UnknownTopic(f"topic {name!r} is not declared (declared: {known})")

    def _require_open(self) -> None:
        if self._closed:
            raise BusClosedError("this bus was closed; open another one")

    def _schema(self, config: TopicConfig) -> SchemaCheck | None:
        """A topic's schema, made ready when it is first needed: many who open a bus only read."""
        if config.schema is None or self._compile_schema is None:
            return None
        check = self._schemas.get(config.name)
        if check is None:
            check = SchemaCheck(config, self._compile_schema(config.schema))
            self._schemas[config.name] = check
        return check

    def _checked(self, config: TopicConfig, messages: Sequence[Message | Any]) -> Batch:
        """Messages that may be appended to a topic, with all that only its rules can tell."""
        schema = self._schema(config)
        current = schema.current if schema else UNDECLARED_VERSION
        batch, payloads = check_messages(
            messages, config, current, self._partitioner, self._now_ms()
        )
        if schema:
            schema.require(payloads, batch.schema_versions)
        return batch

    def _prepare(self, topic: str, messages: Sequence[Message]) -> Batch:
        """What a group's work is to append to a topic once it is settled."""
        return self._checked(self._topic(topic), messages)

    def _check_payload(self, topic: str, payload: Any, version: int) -> None:
        """Refuse what a strict topic would refuse. A topic that is not declared any more refuses
        nothing."""
        config = self._topics.get(topic)
        schema = self._schema(config) if config else None
        if schema:
            schema.require([payload], [version])

    def _log_of(self, config: TopicConfig) -> Appender:
        if config.durable:
            return self._durable
        if self._memory is None:
            raise BusError(f"topic {config.name} lives in memory, and this bus was given none")
        return self._memory

    def _maintain(self, config: TopicConfig) -> Maintained:
        store = self._log_of(config).store
        return maintain(store, config, self._groups.values(), self._now_ms())

    def _bound_memory(self, config: TopicConfig, added: int) -> None:
        """Now and then let old events of a topic in memory go. They wait for nobody."""
        keep = config.retain_bytes or MEMORY_BYTES
        grown = self._in_memory.get(config.name, 0) + added
        if grown > keep // 4:
            grown = 0
            bounded = replace(config, retain_bytes=keep)
            maintain(self._log_of(config).store, bounded, (), self._now_ms())
        self._in_memory[config.name] = grown

    def _while_open(self, go_on: Callable[[], bool]) -> Callable[[], bool]:
        def ask() -> bool:
            self._require_open()
            return go_on()

        return ask

    def _now_ms(self) -> int:
        now_ms = self._clock()
        if now_ms < FIRST_WINDOW_MS:
            raise BusError(
                f"this machine's clock is wrong: it says {now_ms} ms since 1970, which is before "
                f"{FIRST_WINDOW:%Y-%m-%d}. Set it, and publish again"
            )
        return now_ms
