"""What becomes of orders of which some cannot be done: from publishing them to the table, with all
that an operator does on the way, in a real Dagster and by real clicks' GraphQL."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl
import pytest
from deltalake import DeltaTable

from dagster_bus.core.store import Tally
from dagster_bus.orchestration.names import REDRIVE, REPLAY
from tests.acceptance.shop.conftest import ORDERS, POISON, Shop
from tests.support.dagster_dev import wait_for
from tests.support.graphql import backfill, launch, materializations, runs_of

pytestmark = pytest.mark.timeout(600)

GROUP = "priced"
MENDED = 12


def amounts(table: pl.DataFrame) -> list[tuple[int, int]]:
    return sorted(table.select("n", "amount").rows())


def right(*, poison: bool) -> list[tuple[int, int]]:
    """The rows that the table is to have, with the mended orders or without them."""
    return [(n, MENDED if n in POISON else n) for n in range(ORDERS) if poison or n not in POISON]


@pytest.fixture(scope="package")
def buried(shop: Shop) -> tuple[Tally, pl.DataFrame]:
    """What has become of the orders, and the table, when the bus has done all it does alone."""
    wait_for("end of all attempts", lambda: shop.tally(GROUP).settled == ORDERS)
    return shop.tally(GROUP), shop.table(GROUP)


@pytest.fixture(scope="package")
def mended(shop: Shop, buried: tuple[Tally, pl.DataFrame]) -> None:
    """The operator has mended what had died."""
    patch = json.dumps([{"op": "replace", "path": "/amount", "value": str(MENDED)}])
    asked = {"group": GROUP, "everything": True, "patch": patch, "dry_run": False}
    launch(shop.url, REDRIVE, {f"{REDRIVE}_step": asked})
    wait_for("end of what was sent back", lambda: shop.tally(GROUP).processed == ORDERS)


def test_what_fails_alone_is_in_the_dead_letters_with_its_story_and_the_rest_in_the_table(
    shop: Shop, buried: tuple[Tally, pl.DataFrame]
) -> None:
    tally, table = buried
    assert tally == Tally(processed=ORDERS - len(POISON), dead_lettered=len(POISON))
    assert amounts(table) == right(poison=False)
    letters = shop.bus.dead_letters(GROUP).list()
    died = sorted(letter.event.id for letter in letters)
    assert died == sorted(shop.published["orders"][n] for n in POISON)
    runs = wait_for("end of the runs", lambda: ended_runs(shop))
    for letter in letters:
        first, second, alone = letter.errors
        assert [first.attempt, second.attempt] == [1, 2]
        assert second.at_ms - first.at_ms >= 2_000, "it has waited as its policy says"
        assert [each.worker for each in letter.errors] == runs
        assert "twelve" in alone.message


def ended_runs(shop: Shop) -> list[str]:
    """The three runs that it takes to bury what fails alone, from the first one on."""
    runs = runs_of(shop.url, GROUP)[::-1][:3]
    ended = [each["status"] for each in runs] == ["FAILURE", "FAILURE", "SUCCESS"]
    return [each["runId"] for each in runs] if ended else []


def test_letters_that_are_mended_in_the_launchpad_reach_the_table(shop: Shop, mended: None) -> None:
    assert shop.tally(GROUP) == Tally(processed=ORDERS)
    assert amounts(shop.table(GROUP)) == right(poison=True)
    newest = materializations(shop.url, GROUP, "dead_letters")[0]
    assert newest["metadata"]["dead letters"]["intValue"] == 0


def test_a_backfill_makes_a_spoiled_window_anew_and_nobody_reads_half_of_it(
    shop: Shop, mended: None
) -> None:
    table = DeltaTable(str(shop.folder / "data" / GROUP))
    table.delete(f"n < {ORDERS // 2}")
    table.update(updates={"amount": "-1"})
    spoiled = amounts(shop.table(GROUP))
    assert len(spoiled) == ORDERS // 2
    (window,) = shop.table(GROUP)["_window"].unique()
    with seen_meanwhile(shop) as seen:
        backfill(shop.url, [GROUP], window)
    assert amounts(shop.table(GROUP)) == right(poison=True)
    assert all(each in (spoiled, right(poison=True)) for each in seen)
    assert spoiled in seen
    assert shop.tally(GROUP) == Tally(processed=ORDERS), "the live group has nothing to do with it"


@contextmanager
def seen_meanwhile(shop: Shop) -> Iterator[list[list[tuple[int, int]]]]:
    """What somebody sees who looks at the table all the time."""
    seen: list[list[tuple[int, int]]] = []
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            seen.append(amounts(shop.table(GROUP)))
            enough.wait(0.1)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield seen
    finally:
        enough.set()
        reader.join()


def test_a_replay_from_the_launchpad_fills_a_table_beside_the_live_one(
    shop: Shop, mended: None
) -> None:
    before = shop.table(GROUP)
    asked = {"group": GROUP, "name": "again", "to_offset": 8}
    launch(shop.url, REPLAY, {f"{REPLAY}_events": asked})
    held = [event for partition in (0, 1) for event in shop.bus.read("orders", partition, last=7)]
    assert shop.bus.replays(GROUP)["again"].progress().tally.settled == len(held)
    beside = shop.table(f"{GROUP}__replay_again")
    good = [event.id for event in held if event.payload["n"] not in POISON]
    assert sorted(beside["event_id"]) == sorted(good)
    assert shop.table(GROUP).equals(before)
    assert shop.tally(GROUP) == Tally(processed=ORDERS)
