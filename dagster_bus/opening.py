"""Puts the layers together: from an address or a `topics.yaml` to an open bus."""

from pathlib import Path
from typing import Self

from dagster_bus.core import bus as core
from dagster_bus.spec.configs import group_configs, topic_configs
from dagster_bus.spec.load import LoadedSpec, load_spec
from dagster_bus.stores import SQLITE_PREFIX, open_store


class Bus(core.Bus):
    """The bus as a program opens it."""

    @classmethod
    def open(cls, where: str | Path, *, create: bool = True) -> Self:
        """Open the bus that a `topics.yaml` declares, or the topics of the store at a URL.

        A file's store is made if it does not exist yet, unless `create` is off; a URL's must."""
        if "://" in str(where):
            store = open_store(str(where), create=False)
            return cls(store, store.topics())
        return cls.declared(load_spec(where), create=create)

    @classmethod
    def declared(cls, loaded: LoadedSpec, *, create: bool = True) -> Self:
        """Open the bus of a file that was read already."""
        store = open_store(store_url(loaded), create=create)
        topics = topic_configs(loaded)
        try:
            store.declare(topics)
        except BaseException:
            store.close()
            raise
        return cls(store, topics, group_configs(loaded))


def store_url(loaded: LoadedSpec) -> str:
    """The store's address; the path of an embedded store counts from the file's folder."""
    url = loaded.spec.store
    if url.startswith(SQLITE_PREFIX):
        return f"{SQLITE_PREFIX}{loaded.folder / url.removeprefix(SQLITE_PREFIX)}"
    return url
