"""One MongoDB server for all tests of a session, started when the first of them needs it."""

import itertools
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tools.mongodb import mongo_url

PLACEHOLDER = "the-database"

_held = ExitStack()
_urls: list[str] = []
_numbers = itertools.count(1)


def fresh_database_url() -> str:
    """The address of a database that does not exist yet. Those of the session are left alone: they
    go with the server, and dropping each would take longer than the tests that use them."""
    if not _urls:
        folder = _held.enter_context(TemporaryDirectory(prefix="dagster-bus-mongo-"))
        _urls.append(_held.enter_context(mongo_url(PLACEHOLDER, Path(folder))))
    return _urls[0].replace(PLACEHOLDER, f"bus-test-{os.getpid()}-{next(_numbers)}")


def pytest_sessionfinish() -> None:
    _urls.clear()
    _held.close()


@pytest.fixture
def mongo_database_url() -> str:
    return fresh_database_url()
