"""One MongoDB server for all tests of a session, started when the first of them needs it."""

import itertools
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tools.mongodb import mongo_url

_held = ExitStack()
_numbers = itertools.count(1)
_urls: list[str] = []


def fresh_database_url() -> str:
    """The address of a database that does not exist yet."""
    if not _urls:
        folder = _held.enter_context(TemporaryDirectory(prefix="dagster-bus-mongo-"))
        _urls.append(_held.enter_context(mongo_url("DATABASE", Path(folder))))
    return _urls[0].replace("DATABASE", f"bus-test-{os.getpid()}-{next(_numbers)}")


def pytest_sessionfinish() -> None:
    _held.close()
    _urls.clear()


@pytest.fixture
def url() -> str:
    return fresh_database_url()
