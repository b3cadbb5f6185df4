"""One MongoDB server for all tests of a session, started when the first of them needs it."""

import itertools
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pymongo import MongoClient

from tools.mongodb import mongo_url

PLACEHOLDER = "the-database"
PREFIX = f"bus-test-{os.getpid()}"

_held = ExitStack()
_urls: list[str] = []
_numbers = itertools.count(1)


def fresh_database_url() -> str:
    """The address of a database that does not exist yet. Those of the session go with the server;
    on a server of the user's they are dropped at the end."""
    if not _urls:
        folder = _held.enter_context(TemporaryDirectory(prefix="dagster-bus-mongo-"))
        _urls.append(_held.enter_context(mongo_url(PLACEHOLDER, Path(folder))))
    return _urls[0].replace(PLACEHOLDER, f"{PREFIX}-{next(_numbers)}")


def pytest_sessionfinish() -> None:
    if _urls and os.environ.get("MONGO_URL"):
        with MongoClient[dict[str, object]](_urls[0]) as client:
            for name in client.list_database_names():
                if name.startswith(f"{PREFIX}-"):
                    client.drop_database(name)
    _urls.clear()
    _held.close()


@pytest.fixture
def mongo_database_url() -> str:
    return fresh_database_url()
