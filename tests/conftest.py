"""The stores that every promise is tested on, and the order of the tests."""

import os
import shutil
import tempfile
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

pytest_plugins = [
    "tests.support.command",
    "tests.support.mongo",
    "tests.support.parallel",
]

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3


def use_memory() -> None:
    """Have all temporary folders, also those of processes that tests start, in memory, if there is
    room: most of what stores do is to wait for a disk, and no test takes a disk's power away."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # what was found out before does not hold


use_memory()

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A Spark of the tests does little and soon ends: to compile its code well costs more than it
gives, on a machine with few processors most of all."""

for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(name, JAVA)

STORES = ["sqlite", "mongo"]
"""Kinds of store. A kind that cannot be started here fails the suite; it is never left out."""


def new_store_url(kind: str, folder: Path, *, keep: bool = False) -> str:
    """The address of an empty store of a kind; what it keeps on disk goes into the folder. It is
    for one test, unless it is to be kept for several."""
    if kind == "mongo":
        from tests.support.mongo import fresh_database_url

        return fresh_database_url(keep=keep)
    assert kind == "sqlite"
    return f"sqlite:///{folder}/my bus 50%25?.db"


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_store_url(request.param, tmp_path)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with open_store(store_url) as opened:
        yield opened
