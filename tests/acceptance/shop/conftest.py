"""The shop of `tests/projects`, with a real `dagster dev` in it: one for each kind of store, shared
by the tests of this folder."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from dagster_bus import Bus, Message
from dagster_bus.core.clock import system_clock
from dagster_bus.core.store import Tally
from dagster_bus.core.window import HOUR_MS
from dagster_bus.orchestration.dev import DagsterDev
from tests.conftest import STORES
from tests.support.dagster_dev import free_ports, group_is_gone, wait_for
from tests.support.projects import copy_project

DAGSTER_BUS = (sys.executable, "-c", "from dagster_bus.cli.main import main; main()")

ORDERS = 100
POISON = (42, 70, 99)
"""Orders whose amount is no number."""

COUNTS = {"fragile": 200}
MORE_COUNTS = {"good": 500, "bad": 20, "slow": 30}
"""For what is tested on one store only."""


class Shop:
    """The project, running."""

    def __init__(self, folder: Path, url: str, bus: Bus, store: str) -> None:
        self.folder = folder
        self.url = url
        self.bus = bus
        self.published = published(bus, COUNTS if store == "mongo" else COUNTS | MORE_COUNTS)
        """The ids of events, by topic."""

    def tally(self, group: str) -> Tally:
        return self.bus.group(group).progress().tally

    def table(self, name: str) -> pl.DataFrame:
        """A table, as somebody else than Spark reads it."""
        return pl.read_delta(str(self.folder / "data" / name))


def published(bus: Bus, counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Events for all groups at once, so that the tests wait together. Orders are an hour old, so
    that their window has ended."""
    before = system_clock() - HOUR_MS
    orders = [
        Message({"n": n, "amount": "twelve" if n in POISON else str(n)}, ts=before)
        for n in range(ORDERS)
    ]
    events = {topic: [Message({"n": n}) for n in range(count)] for topic, count in counts.items()}
    return {
        topic: [at.id for at in bus.publish_many(topic, messages)]
        for topic, messages in {"orders": orders, **events}.items()
    }


@pytest.fixture(scope="package", params=STORES)
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    file = copy_project("shop", tmp_path_factory.mktemp("shop"), request.param)
    (port,) = free_ports(1)
    dagster_dev = DagsterDev(file.parent, file.parent / "dagster", port=port)
    with dagster_dev as dagster, warm_spark(file):
        pid = dagster.pid
        with Bus.open(file) as bus:
            yield Shop(file.parent, dagster.url, bus, request.param)
    wait_for("end of all that Dagster started", lambda: group_is_gone(pid), seconds=10)


on_sqlite = pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
"""What has nothing to do with the store."""


@contextmanager
def warm_spark(file: Path) -> Iterator[None]:
    """One Spark for all runs of a project: each of them would start its own."""
    command = [*DAGSTER_BUS, "-f", str(file), "spark"]
    subprocess.run([*command, "start"], check=True, capture_output=True, timeout=240)
    try:
        yield
    finally:
        subprocess.run([*command, "stop"], check=True, capture_output=True, timeout=60)
