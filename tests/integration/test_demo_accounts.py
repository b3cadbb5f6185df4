"""The demo's closing account, of events that are worked off by hand here."""

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from dagster_bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.ranges import Place, covering
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.core.store import Tally
from dagster_bus.errors import EventRefused
from dagster_bus.spec.load import load_spec
from definitions.accounts import FATES, Line, accounts, close, expected, rows_of
from definitions.demo import publish
from definitions.shop import Happening, Shop
from definitions.stage import TOPICS

FINE = Line("payments", 5, Tally(4, 0, 1), 4, Tally(4, 0, 1))


@pytest.mark.parametrize(
    "line",
    [
        replace(FINE, published=6),
        replace(FINE, rows=3),
        replace(FINE, rows=5),
        replace(FINE, tally=Tally(5), rows=5),
        replace(FINE, tally=Tally(3, 0, 2), rows=3),
        replace(FINE, tally=Tally(3, 0, 1), rows=3),
    ],
    ids=["on the way", "row lost", "row twice", "no letter", "too many", "event lost"],
)
def test_one_group_that_does_not_add_up_makes_the_demo_fail(line: Line) -> None:
    said = io.StringIO()
    assert close([FINE, replace(line, group="revenue")], Console(file=said, width=120)) == 1
    assert "revenue does not add up: 4 processed, 1 dead-lettered were due." in said.getvalue()
    assert "payments does not" not in said.getvalue()
    assert "It adds up" not in said.getvalue()


def test_the_demo_succeeds_if_every_group_adds_up() -> None:
    said = io.StringIO()
    assert close([FINE, FINE], Console(file=said, width=120)) == 0
    assert "It adds up: published = processed + filtered + dead-lettered." in said.getvalue()


def test_accounts_are_those_of_the_bus_and_of_the_tables(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUS_STORE", store_url)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    loaded = load_spec(TOPICS)
    shop = Shop(7)
    happened = [of_a_minute_ago(each) for each in [*shop.pass_time(500), *shop.close()]]
    with Bus.open(TOPICS) as bus:
        kinds = publish(bus, happened)
        assert set(FATES["payments"]) < set(kinds)
        assert {line.group: line.adds_up for line in accounts(bus, loaded, kinds)} == dict.fromkeys(
            FATES, False
        )
        due = expected(kinds)["payments"]
        work_off_payments(bus, due)
        payments = loaded.table_path("payments")
        write_deltalake(payments, pa.table({"n": range(due.processed - 1)}))
        found = {line.group: line for line in accounts(bus, loaded, kinds)}
        assert found["payments"] == Line(
            "payments", due.settled, due, due.processed - 1, expected=due
        )
        assert not found["payments"].adds_up
        write_deltalake(payments, pa.table({"n": [-1]}), mode="append")
        assert {line.group: line.adds_up for line in accounts(bus, loaded, kinds)} == {
            **dict.fromkeys(FATES, False),
            "payments": True,
        }


def of_a_minute_ago(happening: Happening) -> Happening:
    """So that no batch waits for more events."""
    ts = system_clock() - 60_000
    return happening._replace(message=happening.message._replace(ts=ts))


def work_off_payments(bus: Bus, due: Tally) -> None:
    """As runs would do it, one for each hour that the events are of."""
    group = bus.group("payments")
    for _ in range(2):
        for delivery in group.reserve():
            held = group.lease(delivery.id, reservation=delivery.reservation, worker="by hand")
            bad = [
                Place(event.topic, event.partition, event.offset)
                for event in group.events(held)
                if not fits(event.payload)
            ]
            refused = (Failed(covering(bad), EventRefused("it is garbled")),) if bad else ()
            group.settle(group.report(held, Report(refused=refused)))
    assert group.progress().tally == due


def fits(payload: object) -> bool:
    return (
        isinstance(payload, dict)
        and "order_id" in payload
        and payload["amount"].replace(".", "").isdigit()
        and float(payload["amount"]) > 0
    )


def test_a_table_that_was_never_made_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(str(tmp_path / "nothing")) == 0
