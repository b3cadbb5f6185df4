"""What may befall the daemon and its runs, in a Dagster of single processes as it is deployed. At
the end every event was handed to one run and settled, and none of it counts as an attempt."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from dagster_bus import Bus
from dagster_bus.core.store import Tally
from tests.conftest import STORES
from tests.support.dagster_dev import wait_for
from tests.support.deployment import Deployment, Process
from tests.support.graphql import (
    attempts_of,
    flip_switch,
    preview,
    runs_of,
    switch_sensor,
    terminate,
)
from tests.support.projects import copy_project

pytestmark = pytest.mark.timeout(600)


class Post:
    """The project, running."""

    def __init__(self, folder: Path, bus: Bus, deployment: Deployment) -> None:
        self.folder = folder
        self.bus = bus
        self.deployment = deployment
        self.url = deployment.url
        self.daemon: Process = deployment.start_daemon()

    def publish(self, group: str, count: int) -> None:
        first = self.bus.group(group).progress().published
        self.bus.publish_many(f"mail.{group}", [{"n": first + n} for n in range(count)])

    def wish(self, mishap: str) -> None:
        (self.folder / f"wish-{mishap}").touch()

    def wait_for_mishap(self, mishap: str) -> None:
        wait_for(mishap, (self.folder / f"has-{mishap}").exists)

    def go_on(self, place: str) -> None:
        (self.folder / f"go-on-{place}").touch()

    def tally(self, group: str) -> Tally:
        return self.bus.group(group).progress().tally

    def statuses(self, group: str) -> list[str]:
        return [run["status"] for run in runs_of(self.url, group)]

    def must_have_done(self, group: str, count: int) -> None:
        """All events of a group are settled, each by one run and on its first attempt."""
        wait_for(f"settled events of {group}", lambda: self.tally(group).settled == count)
        assert self.tally(group) == Tally(processed=count)
        assert set(attempts_of(self.url, group)) == {1}
        if group == "ledger":
            written = pl.read_delta(str(self.folder / "data/ledger"))["n"].to_list()
            assert sorted(written) == list(range(count))
            return
        book = (self.folder / f"book-of-{group}").read_text().splitlines()
        assert sorted(int(line.split()[0]) for line in set(book)) == list(range(count))


AT_ONCE = {
    "tick-of-stopped": ("stopped", 5),
    "run-of-queued": ("queued", 10),
    "refusal-of-refused": ("refused", 5),
    "loss-of-lost": ("lost", 5),
}
"""What begins before the tests, so that they wait together: a mishap, and a group's events."""


@pytest.fixture(scope="module", params=STORES)
def post(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Post]:
    file = copy_project("post", tmp_path_factory.mktemp("post"), request.param)
    with Deployment(file.parent, "post") as deployment, Bus.open(file) as bus:
        post = Post(file.parent, bus, deployment)
        for mishap, (group, count) in AT_ONCE.items():
            post.wish(mishap)
            post.publish(group, count)
        yield post


def test_a_sensor_that_is_stopped_in_the_middle_of_a_tick_loses_nothing(post: Post) -> None:
    post.wait_for_mishap("tick-of-stopped")
    flip_switch(post.url, "stopped_sensor", on=False)
    post.go_on("tick-of-stopped")
    switch_sensor(post.url, "stopped_sensor", on=False)
    post.publish("stopped", 5)
    switch_sensor(post.url, "stopped_sensor", on=True)
    post.must_have_done("stopped", 10)


def test_a_run_that_is_cancelled_in_the_queue_hands_its_events_back(post: Post) -> None:
    queued = wait_for("queued run", lambda: run_in_queue(post))
    terminate(post.url, queued)
    post.go_on("run-of-queued")
    post.must_have_done("queued", 10)
    assert {"runId": queued, "status": "CANCELED"} in runs_of(post.url, "queued")


def run_in_queue(post: Post) -> str:
    """The run that waits for the other one of its group to end."""
    waiting = [run["runId"] for run in runs_of(post.url, "queued") if run["status"] == "QUEUED"]
    return waiting[0] if waiting and "STARTED" in post.statuses("queued") else ""


def test_runs_that_cannot_be_launched_or_never_come_are_no_attempts(post: Post) -> None:
    post.must_have_done("refused", 5)
    post.must_have_done("lost", 5)
    assert post.statuses("refused")[-1] == "FAILURE"
    assert post.statuses("lost")[-1] != "SUCCESS"


def test_a_daemon_is_killed_between_reservation_and_submission_and_two_follow_it(
    post: Post,
) -> None:
    """One tick is not back yet, another is about to hand its run to the queue. The daemons after it
    tick at the same time, and so do previews."""
    groups = {"reserved": "tick", "submitted": "submission", "ledger": "tick"}
    for group, place in groups.items():
        post.wish(f"{place}-of-{group}")
        post.publish(group, 5)
    for group, place in groups.items():
        post.wait_for_mishap(f"{place}-of-{group}")
    post.deployment.kill(post.daemon)
    for group, place in groups.items():
        post.go_on(f"{place}-of-{group}")
    assert all(post.tally(group) == Tally() for group in groups)

    daemons = [post.deployment.start_daemon() for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            post.publish("twins", 10)
            list(pool.map(lambda _: preview(post.url, "twins_sensor"), range(2)))
    post.must_have_done("twins", 20)
    for group in groups:
        post.must_have_done(group, 5)
    assert all(daemon.poll() is None for daemon in daemons)


def test_no_run_is_left_on_its_way(post: Post) -> None:
    """Also the one that was lost when it was launched is ended, by Dagster's own monitoring."""
    ended = {"SUCCESS", "FAILURE", "CANCELED"}
    wait_for(
        "end of all runs",
        lambda: all({*post.statuses(each)} <= ended for each in post.bus.groups),
    )
