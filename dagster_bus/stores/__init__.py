"""Where events and state are kept. A store is chosen by its URL.

sqlite:///relative/path.db     sqlite:////absolute/path.db
mongodb://host/database?replicaSet=rs0     mongodb+srv://host/database
"""

from dagster_bus.core.store import Store
from dagster_bus.errors import UsageError

SQLITE_PREFIX = "sqlite:///"
MONGO_PREFIXES = ("mongodb://", "mongodb+srv://")


def open_store(url: str, *, create: bool = True) -> Store:
    """Open the store at a URL; `create` makes it if it does not exist."""
    if is_mongo(url):
        from dagster_bus.stores.mongo.store import MongoStore

        return MongoStore(url, create=create)
    from dagster_bus.stores.sqlite.store import SqliteStore

    return SqliteStore(sqlite_path(url), create=create)


def open_memory_store() -> Store:
    """A store for topics that need not survive this process."""
    from dagster_bus.stores.sqlite.connection import MEMORY
    from dagster_bus.stores.sqlite.store import SqliteStore

    return SqliteStore(MEMORY)


def is_mongo(url: str) -> bool:
    return url.startswith(MONGO_PREFIXES)


def sqlite_path(url: str) -> str:
    """The file that an embedded store's URL names."""
    path = url.removeprefix(SQLITE_PREFIX)
    if path == url or not path:
        raise UsageError(
            f"a store's address is {SQLITE_PREFIX}path/to/bus.db or mongodb://host/database; this "
            f"one begins with {url.split('://')[0]!r}"  # the rest may hold a password
        )
    return path
