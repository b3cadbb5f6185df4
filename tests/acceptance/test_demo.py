"""The demo, as a newcomer starts it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import STORES
from tests.support.dagster_dev import wait_for

PROJECT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "definitions.demo"]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", STORES)
def test_the_bounded_demo_accounts_for_every_event(tmp_path: Path, store: str) -> None:
    patience = ["--within", "360"]  # other tests may run beside it
    said = subprocess.run(
        [*DEMO, "--once", "--store", store, "--home", str(tmp_path), *patience],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "It adds up: published = processed + filtered + dead-lettered." in said.stdout
    kinds = published(said.stdout)
    assert kinds["order"] + kinds["order by phone"] == 2_000
    data = tmp_path / f"{store}-once" / "data"
    revenue = pl.read_delta(str(data / "revenue"))
    assert revenue["payment_id"].n_unique() == revenue.height == kinds["payment"]
    shipments = pl.read_delta(str(data / "shipments"))
    garbled = shipments["_corrupt"].drop_nulls()
    assert sorted({text.split(";")[0] for text in garbled}) == ['"SENT']
    assert len(garbled) == kinds["shipment as a line of text"]
    late = shipments.filter(pl.col("carrier") == "snail-freight")
    assert late.height == kinds["shipment that is reported late"] > 0
    assert late["_window"].max() < shipments["_window"].max()  # type: ignore[operator]


def published(said: str) -> dict[str, int]:
    """What the demo says that it has published, by kind."""
    lines = re.findall(r"^ +([\d,]+)  ([a-z ]+)$", said, re.MULTILINE)
    return {kind: int(number.replace(",", "")) for number, kind in lines}


def descendants(pid: int) -> set[int]:
    """Processes below a process, as the kernel lists them."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True)
    parents = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = {pid}
    while more := {child for child, parent in parents if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.timeout(180)
def test_ctrl_c_ends_everything_that_the_demo_started(tmp_path: Path) -> None:
    output = tmp_path / "said"
    with output.open("w") as file:
        command = [*DEMO, "--home", str(tmp_path)]
        demo = subprocess.Popen(command, cwd=PROJECT, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_for("guide", lambda: "Ctrl-C ends everything" in output.read_text(), seconds=120)
        started = descendants(demo.pid)
        assert len(started) >= 3, "a UI, a daemon and a code server at least"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
    finally:
        demo.kill()
        demo.wait()
    assert "Dagster is at http://127.0.0.1:" in output.read_text()
    wait_for("end of the processes", lambda: not any(map(alive, started)), seconds=10)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
