"""From publish to table, with a real daemon, real runs and a real Spark, read by somebody else."""

import os
import signal

import pytest

from dagster_bus.core.store import Tally
from tests.acceptance.shop.conftest import Shop, on_sqlite
from tests.support.dagster_dev import wait_for
from tests.support.graphql import materializations, runs_of, terminate

pytestmark = pytest.mark.timeout(600)


def statuses(shop: Shop, group: str) -> list[str]:
    """Of a group's runs, newest first. A run ends a little after its delivery."""
    return [run["status"] for run in runs_of(shop.url, group)]


def event_ids(shop: Shop, table: str) -> list[str]:
    return sorted(shop.table(table)["event_id"])


def test_a_run_that_is_killed_is_done_on_the_next_attempt_and_each_event_is_there_once(
    shop: Shop,
) -> None:
    mark = shop.folder / "to-be-killed"
    pid = wait_for("run to kill", lambda: mark.exists() and mark.read_text())
    os.kill(int(pid), signal.SIGKILL)
    wait_for("second attempt", lambda: shop.tally("killed").settled == 200)
    assert shop.tally("killed") == Tally(processed=200)
    assert event_ids(shop, "killed") == sorted(shop.published["fragile"])
    (done,) = wait_for("materialization", lambda: materializations(shop.url, "killed"))
    assert done["metadata"]["attempt"]["intValue"] == 2
    wait_for("end of the run", lambda: statuses(shop, "killed")[0] == "SUCCESS")
    assert len(statuses(shop, "killed")) == 2


@on_sqlite
def test_a_run_that_is_cancelled_hands_its_work_back_though_it_had_one_attempt_only(
    shop: Shop,
) -> None:
    wait_for("run to cancel", (shop.folder / "to-be-cancelled").exists)
    (first,) = runs_of(shop.url, "cancelled")
    terminate(shop.url, first["runId"])
    wait_for("next run", lambda: shop.tally("cancelled").settled == 30)
    assert shop.tally("cancelled") == Tally(processed=30)
    assert event_ids(shop, "cancelled") == sorted(shop.published["slow"])
    (done,) = wait_for("materialization", lambda: materializations(shop.url, "cancelled"))
    assert done["metadata"]["attempt"]["intValue"] == 1
    wait_for("end of the run", lambda: statuses(shop, "cancelled") == ["SUCCESS", "CANCELED"])


@on_sqlite
def test_published_events_become_rows_of_a_delta_table(shop: Shop) -> None:
    wait_for("settled events", lambda: shop.tally("plain").settled == 500)
    assert shop.tally("plain") == Tally(processed=500)
    assert event_ids(shop, "plain") == sorted(shop.published["good"])
    (done,) = wait_for("materialization", lambda: materializations(shop.url, "plain"))
    metadata = done["metadata"]
    assert metadata["rows"]["intValue"] == 500
    assert "good/0:1-" in metadata["ranges"]["jsonString"]
    assert [done["partition"]] == shop.table("plain")["_window"].unique().to_list()
    wait_for("end of the run", lambda: statuses(shop, "plain") == ["SUCCESS"])


@on_sqlite
def test_a_failing_pipeline_backs_off_and_ends_in_the_dead_letters(shop: Shop) -> None:
    wait_for("dead letters", lambda: shop.tally("failing").dead_lettered == 20)
    letters = shop.bus.dead_letters("failing").list()
    assert sorted(letter.event.id for letter in letters) == sorted(shop.published["bad"])
    errors = letters[0].errors
    assert [error.attempt for error in errors] == [1, 2, 3]
    assert all("boom" in error.message for error in errors)
    assert errors[1].at_ms - errors[0].at_ms >= 2_000
    assert errors[2].at_ms - errors[1].at_ms >= 4_000
    runs = runs_of(shop.url, "failing")
    wait_for("end of the runs", lambda: statuses(shop, "failing") == ["FAILURE"] * 3)
    assert [error.worker for error in errors] == [run["runId"] for run in reversed(runs)]

    shown = wait_for("asset", lambda: materializations(shop.url, "failing", "dead_letters"))[0]
    assert shown["metadata"]["dead letters"]["intValue"] == 20
    assert len(shown["metadata"]["newest"]["table"]["records"]) == 20
    assert "boom" in shown["metadata"]["why"]["mdStr"]
