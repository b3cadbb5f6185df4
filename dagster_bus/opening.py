"""Puts the layers together: from an address or a `topics.yaml` to an open bus."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicConfig
from dagster_bus.live.bus import LiveBus
from dagster_bus.schemas import compile_schema
from dagster_bus.spec.configs import group_configs, topic_configs
from dagster_bus.spec.kept import kept_spec
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.stores import SQLITE_PREFIX, open_memory_store, open_store


class Bus(LiveBus):
    """The bus as a program opens it."""

    @classmethod
    def open(cls, where: str | Path, *, create: bool = True) -> Self:
        """Open the bus that a `topics.yaml` declares, or the topics of the store at a URL, by the
        rules they were last declared with.

        A file's store is made if it does not exist yet, unless `create` is off; a URL's must."""
        if "://" in str(where):
            store = open_store(str(where), create=False)
            return cls._on(store, lambda store: store.topics(), groups=None)
        return cls.declared(kept_spec(where), create=create)

    @classmethod
    def declared(cls, loaded: LoadedSpec, *, create: bool = True) -> Self:
        """Open the bus of a file that was read already."""
        topics = topic_configs(loaded)
        durable = [topic for topic in topics if topic.durable]

        def declare(store: Store) -> Iterable[TopicConfig]:
            store.declare(durable)
            return topics

        store = open_store(store_url(loaded), create=create)
        every_ms = loaded.spec.system.metrics
        every_s = None if every_ms is None else every_ms / 1_000
        return cls._on(store, declare, group_configs(loaded), metrics_every_s=every_s)

    @classmethod
    def _on(
        cls,
        store: Store,
        find_topics: Callable[[Store], Iterable[TopicConfig]],
        groups: Iterable[GroupConfig] | None,
        *,
        metrics_every_s: float | None = None,
    ) -> Self:
        """A bus on an open store, which is closed again if that fails."""
        try:
            topics = tuple(find_topics(store))
            memory = _memory(topics)
            return cls(
                store,
                topics,
                groups,
                compile_schema=compile_schema,
                memory=memory,
                metrics_every_s=metrics_every_s,
            )
        except BaseException:
            store.close()
            raise


def _memory(topics: Iterable[TopicConfig]) -> Store | None:
    """A store for the topics that are not durable, if there are any."""
    fleeting = [topic for topic in topics if not topic.durable]
    if not fleeting:
        return None
    memory = open_memory_store()
    memory.declare(fleeting)
    return memory


def store_url(loaded: LoadedSpec) -> str:
    """The store's address; the path of an embedded store counts from the file's folder."""
    url = loaded.spec.store
    if url.startswith(SQLITE_PREFIX):
        return f"{SQLITE_PREFIX}{loaded.folder / url.removeprefix(SQLITE_PREFIX)}"
    return url
