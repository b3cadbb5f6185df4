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
_made: list[str] = []
_kept: list[str] = []


def fresh_database_url(*, keep: bool = False) -> str:
    """The address of a database that does not exist yet, and will not after the test, or if it is
    kept after the session."""
    if not _urls:
        folder = _held.enter_context(TemporaryDirectory(prefix="dagster-bus-mongo-"))
        _urls.append(_held.enter_context(mongo_url(PLACEHOLDER, Path(folder))))
    name = f"{PREFIX}-{next(_numbers)}"
    (_kept if keep else _made).append(name)
    return _urls[0].replace(PLACEHOLDER, name)


def drop_databases(*, kept: bool = False) -> None:
    """Drop what was made so far, but for what is kept. A server holds some thirty files open for
    each of them, and dies of the system's limit after a few hundred."""
    if names := _kept if kept else _made:
        with MongoClient[dict[str, object]](_urls[0]) as client:
            for name in names:
                client.drop_database(name)
        names.clear()


def pytest_runtest_logfinish() -> None:
    drop_databases()


def pytest_sessionfinish() -> None:
    drop_databases(kept=True)
    _urls.clear()
    _held.close()


@pytest.fixture
def mongo_database_url() -> str:
    return fresh_database_url()
