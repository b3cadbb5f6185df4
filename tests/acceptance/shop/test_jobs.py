"""A group that starts a job of the user's own, with all that may happen to its sensor and its runs:
in a real Dagster, by real clicks' GraphQL. At the end every event was mailed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_bus.core.store import Tally
from tests.acceptance.shop.conftest import Shop, on_sqlite
from tests.support.dagster_dev import wait_for
from tests.support.graphql import preview, reload_location, runs_of, switch_sensor, terminate

pytestmark = pytest.mark.timeout(600)

SENSOR = "mailer_sensor"


def publish(shop: Shop, letters: int, mark: str | None = None) -> None:
    """Letters; of the last one, the run that first gets it waits until it may go on."""
    first = shop.bus.group("mailer").progress().published
    payloads: list[dict[str, object]] = [{"n": first + n} for n in range(letters)]
    if mark:
        payloads[-1]["mark"] = mark
    shop.bus.publish_many("letters", payloads)


def run_that_waits(shop: Shop, mark: str) -> tuple[int, str]:
    """The process and the id of the run that waits."""
    file = shop.folder / mark
    pid = int(wait_for("run that waits", lambda: file.exists() and file.read_text()))
    return pid, runs_of(shop.url, "mailer")[0]["runId"]


def go_on(shop: Shop, mark: str) -> None:
    (shop.folder / f"{mark}-go-on").touch()


def wait_until_all_is_done(shop: Shop) -> None:
    group = shop.bus.group("mailer")
    wait_for("settled letters", lambda: group.progress().lag == 0)


def mailed(shop: Shop) -> list[int]:
    return [int(line) for line in Path(shop.folder / "mailed").read_text().split()]


@pytest.fixture(autouse=True)
def every_letter_is_mailed_once_at_the_end(shop: Shop) -> Iterator[None]:
    yield
    wait_until_all_is_done(shop)
    published = shop.bus.group("mailer").progress().published
    assert shop.tally("mailer") == Tally(processed=published)
    assert sorted(mailed(shop)) == list(range(published))


def test_a_preview_takes_nothing_away(shop: Shop) -> None:
    switch_sensor(shop.url, SENSOR, on=False)
    publish(shop, 5)
    assert preview(shop.url, SENSOR)
    switch_sensor(shop.url, SENSOR, on=True)


def test_a_group_whose_sensor_is_off_pauses_and_goes_on(shop: Shop) -> None:
    publish(shop, 1, "paused")
    run_that_waits(shop, "paused")
    switch_sensor(shop.url, SENSOR, on=False)
    publish(shop, 5)
    go_on(shop, "paused")
    wait_for("end of the run", lambda: runs_of(shop.url, "mailer")[0]["status"] == "SUCCESS")
    before = done(shop)
    assert shop.bus.group("mailer").progress().lag == 6
    switch_sensor(shop.url, SENSOR, on=True)
    wait_until_all_is_done(shop)
    wait_for("end of the run", lambda: done(shop) > before)
    assert done(shop) == before + 1


def done(shop: Shop) -> int:
    """How many runs have done their work. On a busy machine some may have come too late."""
    return [run["status"] for run in runs_of(shop.url, "mailer")].count("SUCCESS")


@on_sqlite
def test_a_run_whose_process_is_killed_has_failed_an_attempt(shop: Shop) -> None:
    publish(shop, 5, "killed")
    pid, run_id = run_that_waits(shop, "killed")
    os.kill(pid, signal.SIGKILL)
    wait_for("another run", lambda: runs_of(shop.url, "mailer")[0]["runId"] != run_id)
    wait_until_all_is_done(shop)
    newest, killed = runs_of(shop.url, "mailer")[:2]
    assert killed == {"runId": run_id, "status": "FAILURE"}
    assert newest["status"] == "SUCCESS"


@on_sqlite
def test_a_run_that_is_terminated_hands_its_letters_back(shop: Shop) -> None:
    publish(shop, 5, "terminated")
    _, run_id = run_that_waits(shop, "terminated")
    terminate(shop.url, run_id)
    wait_until_all_is_done(shop)
    newest, terminated = runs_of(shop.url, "mailer")[:2]
    assert terminated == {"runId": run_id, "status": "CANCELED"}
    assert newest["status"] == "SUCCESS"


@on_sqlite
def test_a_run_goes_on_while_its_code_location_is_loaded_anew(shop: Shop) -> None:
    publish(shop, 5, "reloaded")
    _, run_id = run_that_waits(shop, "reloaded")
    reload_location(shop.url)
    group = shop.bus.group("mailer")
    before = group.open_deliveries()[0].due_ms
    wait_for("heartbeat", lambda: group.open_deliveries()[0].due_ms > before)
    go_on(shop, "reloaded")
    wait_until_all_is_done(shop)
    assert runs_of(shop.url, "mailer")[0] == {"runId": run_id, "status": "SUCCESS"}
