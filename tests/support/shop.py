"""The shop of `tests/projects`, with a real `dagster dev` in it, shared by the tests that look at
it: one for each kind of store."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from dagster_bus import Bus, Message
from dagster_bus.core.clock import system_clock
from dagster_bus.core.store import Tally
from dagster_bus.core.window import HOUR_MS
from dagster_bus.orchestration.dev import DagsterDev
from tests.conftest import STORES, new_store_url
from tests.support.dagster_dev import group_is_gone, wait_for

PROJECTS = Path(__file__).parents[1] / "projects"
DAGSTER_BUS = (sys.executable, "-c", "from dagster_bus.cli.main import main; main()")


def copy_project(name: str, folder: Path, store: str) -> Path:
    """A project of the tests in a folder of its own, on an empty store; its `topics.yaml`."""
    shutil.copytree(
        PROJECTS / name, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    file = folder / "topics.yaml"
    text = file.read_text(encoding="utf-8")
    url = new_store_url(store, folder, keep=True)
    file.write_text(text.replace("sqlite:///bus.db", f'"{url}"'), encoding="utf-8")
    return file


class Shop:
    """The project, running."""

    def __init__(self, file: Path, dagster: DagsterDev) -> None:
        self.file = file
        self.folder = file.parent
        self.dagster = dagster
        self.url = dagster.url

    def bus(self) -> Bus:
        return Bus.open(self.file)

    def tally(self, group: str) -> Tally:
        with self.bus() as bus:
            return bus.group(group).progress().tally

    def table(self, name: str) -> pl.DataFrame:
        """A table, as somebody else than Spark reads it."""
        return pl.read_delta(str(self.folder / "data" / name))


@contextmanager
def warm_spark(file: Path) -> Iterator[None]:
    """One Spark for all runs of a project: each of them would start its own."""
    command = [*DAGSTER_BUS, "-f", str(file), "spark"]
    subprocess.run([*command, "start"], check=True, capture_output=True, timeout=240)
    try:
        yield
    finally:
        subprocess.run([*command, "stop"], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="session", params=STORES)
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    file = copy_project("shop", tmp_path_factory.mktemp("shop"), request.param)
    folder = file.parent
    with DagsterDev(folder, folder / "dagster") as dagster, warm_spark(file):
        pid = dagster.pid
        yield Shop(file, dagster)
    wait_for("end of all that Dagster started", lambda: group_is_gone(pid), seconds=10)


POISON = (42, 70, 99)
"""Orders whose amount is no number."""

COUNTS = {"good": 500, "bad": 20, "fragile": 200, "slow": 30}


@pytest.fixture(scope="session")
def published(shop: Shop) -> dict[str, list[str]]:
    """Events for all groups at once, so that the tests wait together: their ids by topic. Orders
    are an hour old, so that their window has ended."""
    before = system_clock() - HOUR_MS
    orders = [
        Message({"n": n, "amount": "twelve" if n in POISON else str(n)}, ts=before)
        for n in range(100)
    ]
    events = {topic: [Message({"n": n}) for n in range(count)] for topic, count in COUNTS.items()}
    with shop.bus() as bus:
        return {
            topic: [at.id for at in bus.publish_many(topic, messages)]
            for topic, messages in {"orders": orders, **events}.items()
        }
