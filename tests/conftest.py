"""The stores that every promise is tested on, and the order of the tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dagster_bus.core.store import Store
from dagster_bus.stores import open_store

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"  # tests talk to this machine only

settings.register_profile(
    "bus", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("bus")

pytest_plugins = ["tests.support.mongo", "tests.support.shop"]

TESTS = Path(__file__).parent

ORDER = ["unit", "contract", "simulation", "integration", "acceptance", "browser"]
"""Fast ones first; those that share a running Dagster together, at the end."""

STORES = ["sqlite", "mongo"]
"""Kinds of store. A kind that cannot be started here fails the suite; it is never left out."""


def new_store_url(kind: str, folder: Path) -> str:
    """The address of an empty store of a kind; what it keeps on disk goes into the folder."""
    if kind == "mongo":
        from tests.support.mongo import fresh_database_url

        return fresh_database_url()
    assert kind == "sqlite"
    return f"sqlite:///{folder}/my bus 50%25?.db"


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_store_url(request.param, tmp_path)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with open_store(store_url) as opened:
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.index(item.path.relative_to(TESTS).parts[0]))
