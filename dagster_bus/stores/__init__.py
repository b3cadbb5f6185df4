"""Where events and state are kept. A store is chosen by its URL.

sqlite:///relative/path.db     sqlite:////absolute/path.db
"""

from dagster_bus.core.store import Store
from dagster_bus.errors import UsageError

SQLITE_PREFIX = "sqlite:///"


def open_store(url: str, *, create: bool = True) -> Store:
    """Open the store at a URL; `create` makes it if it does not exist."""
    from dagster_bus.stores.sqlite import SqliteStore

    return SqliteStore(sqlite_path(url), create=create)


def sqlite_path(url: str) -> str:
    """The file that an embedded store's URL names."""
    path = url.removeprefix(SQLITE_PREFIX)
    if path == url or not path:
        raise UsageError(
            f"{url!r} is not the address of a store: write {SQLITE_PREFIX}path/to/bus.db"
        )
    return path
