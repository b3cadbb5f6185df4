"""The store for many machines: a MongoDB replica set.

What it keeps is told in `schema`. An append moves the counters of its partitions and inserts
its events in one transaction, so offsets are dense and become visible in order. Every write is in
the journal of a majority of the members before it is acknowledged, and readers see only what a
majority has: no change of primary takes anything back.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.closing import Closing
from dagster_bus.core.dedup import keys_to_sift
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.event import Batch, Event, Published
from dagster_bus.core.ranges import Place
from dagster_bus.core.store import (
    Bounds,
    Change,
    CompactionStep,
    DeadLetter,
    GroupProgress,
    GroupView,
    LetterQuery,
)
from dagster_bus.core.topic import OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import BusError, StoreError, UnknownDelivery, UsageError
from dagster_bus.stores.common import try_commit
from dagster_bus.stores.configs import config_from_text, config_to_text, require_same_partitions

try:
    from pymongo import ASCENDING
    from pymongo.client_session import ClientSession
except ImportError:
    raise UsageError(
        "a store on MongoDB needs its driver: pip install 'dagster-bus[mongo]'"
    ) from None

from dagster_bus.stores.mongo import (
    appending,
    changes,
    groups,
    letters,
    places,
    reading,
    trimming,
)
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import (
    bounds_from_document,
    delivery_from_document,
    event_from_document,
    new_counter,
    partition_of,
)
from dagster_bus.stores.mongo.holders import holders
from dagster_bus.stores.mongo.listening import Ear, MongoListener
from dagster_bus.stores.mongo.upgrading import upgrade

FORGET_EVERY = 500
"""Keys after which some that have expired are deleted, twice as many."""


class MongoStore(Closing):
    """A `Store` in a MongoDB database."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self._connection = MongoConnection(url, create=create)
        self._database = self._connection.database
        try:
            upgrade(self._connection)
        except BaseException:
            self._connection.close()
            raise
        self._ear = Ear(self._connection)

    def declare(self, topics: Sequence[TopicConfig]) -> None:
        known = {topic.name: topic for topic in self.topics()}
        if all(known.get(topic.name) == topic for topic in topics):
            return
        self._connection.transact(lambda session: self._declare(topics, session))

    def _declare(self, topics: Sequence[TopicConfig], session: ClientSession) -> None:
        configs = self._database["topic_configs"]
        counts = {found["_id"]: found["partitions"] for found in configs.find(session=session)}
        for topic in topics:
            if topic.name in counts:
                require_same_partitions(topic, counts[topic.name])
            else:
                parts = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
                self._database["counters"].insert_many(map(new_counter, parts), session=session)
            rules = {"partitions": topic.partitions, "config": config_to_text(topic)}
            configs.update_one({"_id": topic.name}, {"$set": rules}, upsert=True, session=session)

    def topics(self) -> list[TopicConfig]:
        with self._connection.reading() as session:
            found = self._database["topic_configs"].find(session=session).sort("_id", ASCENDING)
            return [config_from_text(each["config"]) for each in found]

    def append(self, batches: Sequence[Batch], now_ms: int) -> list[list[Published]]:
        published = self._connection.transact(
            lambda session: appending.append(self._database, session, batches, now_ms)
        )
        for batch in batches:
            self._forget_keys(batch, now_ms)
        return published

    def _forget_keys(self, batch: Batch, now_ms: int) -> None:
        """Now and then, in proportion to the keys that come: so their number stays bounded, also
        if each process publishes once. The events are safe already, whatever happens here."""
        keys = len(keys_to_sift(batch))
        if keys and random.random() < keys / FORGET_EVERY:
            with suppress(StoreError), self._connection.bounded():
                appending.forget_keys(self._database, now_ms, 2 * max(keys, FORGET_EVERY))

    def bounds(self, topics: Sequence[str]) -> dict[TopicPartition, Bounds]:
        with self._connection.snapshot() as session:
            found = self._database["counters"].find({"topic": {"$in": [*topics]}}, session=session)
            found.sort([("topic", ASCENDING), ("partition", ASCENDING)])
            return {partition_of(counter): bounds_from_document(counter) for counter in found}

    def read(self, span: OffsetRange, limit: int) -> list[Event]:
        return reading.read(self._connection, span, limit)

    def iterate(self, span: OffsetRange, shared_by: int = 1) -> Iterator[Event]:
        return reading.iterate(self._connection, span, shared_by=shared_by)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], ts_ms: int
    ) -> dict[TopicPartition, int]:
        return places.offsets_at(self._connection, partitions, ts_ms)

    def offset_keeping(self, partition: TopicPartition, keep_bytes: int) -> int:
        return places.offset_keeping(self._connection, partition, keep_bytes)

    def trim(self, partition: TopicPartition, first: int, limit: int) -> int:
        return trimming.trim(self._connection, partition, first, limit)

    def compact(
        self, partition: TopicPartition, before: int, tombstones_before_ms: int, limit: int
    ) -> CompactionStep:
        return trimming.compact(self._connection, partition, before, tombstones_before_ms, limit)

    def listen(self) -> MongoListener:
        return self._ear.listen()

    def view(self, group: str, topics: Sequence[str], *, now_ms: int, due_limit: int) -> GroupView:
        with self._connection.snapshot() as session:
            return groups.view(
                self._database, session, group, topics, now_ms=now_ms, due_limit=due_limit
            )

    def progress(self, group: str, topics: Sequence[str]) -> GroupProgress:
        with self._connection.snapshot() as session:
            return groups.progress(self._database, session, group, topics)

    def delivery(self, id: str) -> Delivery:
        with self._connection.reading() as session:
            found = self._database["deliveries"].find_one({"_id": id}, session=session)
        if found is None:
            raise UnknownDelivery(f"there is no delivery {id!r} in this store")
        return delivery_from_document(found)

    def commit(self, change: Change) -> None:
        self._connection.transact(lambda session: changes.commit(self._database, session, change))

    def commit_all(self, changes: Sequence[Change]) -> list[BusError | None]:
        return [try_commit(self, change) for change in changes]

    @property
    def takes_turns(self) -> bool:
        return False

    def fitting(self, span: OffsetRange, most_bytes: int) -> tuple[int, int]:
        return places.fitting(self._connection, span, most_bytes)

    def most_urgent(self, spans: Sequence[OffsetRange]) -> int | None:
        return places.most_urgent(self._connection, spans)

    def holders(self, group: str, spans: Sequence[OffsetRange]) -> list[tuple[Place, str]]:
        with self._connection.snapshot() as session:
            return holders(self._database, session, group, spans)

    def deliveries(self, ids: Sequence[str]) -> list[Delivery]:
        with self._connection.reading() as session:
            return groups.deliveries(self._database, session, ids)

    def groups(self) -> list[str]:
        with self._connection.reading() as session:
            return groups.names(self._database, session)

    def breaker(self, group: str) -> Breaker:
        with self._connection.reading() as session:
            return groups.breaker(self._database, session, group)

    def open_deliveries(self, group: str, state: State | None = None) -> list[Delivery]:
        with self._connection.snapshot() as session:
            return groups.open_deliveries(self._database, session, group, state)

    def dead_letters(
        self, query: LetterQuery, *, limit: int, before: int | None = None
    ) -> list[DeadLetter]:
        with self._connection.reading() as session:
            return letters.find(self._database, session, query, limit, before)

    def dead_letter_counts(self, group: str) -> dict[str, int]:
        with self._connection.reading() as session:
            return letters.counts(self._database, session, group)

    def redriven(self, group: str, spans: Sequence[OffsetRange]) -> list[Event]:
        with self._connection.reading() as session:
            found = letters.sent_back(self._database, session, group, spans)
            return [event_from_document(each) for each in found]

    def purge(self, group: str, died_before_ms: int, limit: int) -> int:
        return self._connection.transact(
            lambda session: letters.purge(self._database, session, group, died_before_ms, limit)
        )

    def close(self) -> None:
        self._ear.close()
        self._connection.close()
