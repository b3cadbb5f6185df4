"""An office: gives turns to desks, and has what they write written together."""

import threading
import time
from collections.abc import Sequence
from typing import Any, cast

from dagster_bus.core.store import Change, Store
from dagster_bus.errors import StaleState, StoreError
from dagster_bus.live.office import Office, Offices

LONG_S = 30.0


class Writer:
    """A store that only writes, and refuses a group that is called so."""

    def __init__(self, *, takes_turns: bool = True, error: Exception | None = None) -> None:
        self.written: list[list[str]] = []
        self.takes_turns = takes_turns
        self.error = error

    def commit_all(self, changes: Sequence[Change]) -> list[StaleState | None]:
        if self.error:
            raise self.error
        names = [change.group for change in changes]
        self.written.append(names)
        return [StaleState("no") if name == "refused" else None for name in names]


class Clerk:
    """A desk with one wish, which is over after it was answered."""

    def __init__(self, wish: str | None = None) -> None:
        self.is_rung = True
        self.wake_at = 0.0
        self.answers: list[Exception | None] = []
        self.gone = threading.Event()
        self._wish = wish

    def begin(self, now_s: float) -> None: ...

    def wish(self, now_s: float, *, is_round: bool) -> Change | None:
        return Change(group=self._wish) if self._wish and is_round else None

    def finish(self, now_s: float, refused: Exception | None) -> bool:
        self.answers.append(refused)
        return True

    def is_busy(self) -> bool:
        return False

    def leave(self) -> None:
        self.gone.set()


def office(store: Writer) -> Office:
    return Office(cast("Store", cast("Any", store)), "test")


def seat(office: Office, *clerks: Clerk) -> None:
    """Let some desks have their first turn together."""
    with office._lock:
        office._desks += clerks[:-1]
    office.add(clerks[-1])
    for clerk in clerks:
        assert clerk.gone.wait(LONG_S)


def test_what_desks_write_in_a_turn_is_written_together_and_each_hears_of_its_own() -> None:
    store = Writer()
    one, refused, silent = Clerk("one"), Clerk("refused"), Clerk()
    seat(office(store), one, refused, silent)
    assert store.written == [["one", "refused"]]
    assert (one.answers, silent.answers) == ([None], [None])
    assert isinstance(refused.answers[0], StaleState)


def test_all_hear_of_a_store_that_fails() -> None:
    trouble = StoreError("the disk is full")
    clerks = Clerk("one"), Clerk("two")
    seat(office(Writer(error=trouble)), *clerks)
    assert [clerk.answers for clerk in clerks] == [[trouble], [trouble]]


def test_an_office_that_everybody_left_opens_again() -> None:
    store = Writer()
    place = office(store)
    for name in ("one", "two"):
        seat(place, Clerk(name))
        deadline = time.monotonic() + LONG_S
        while place._thread is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        place.round_at = 0.0
    assert store.written == [["one"], ["two"]]


def test_workers_share_a_thread_only_where_writers_take_turns() -> None:
    offices = Offices()
    for takes_turns in (True, False):
        store = cast("Store", cast("Any", Writer(takes_turns=takes_turns)))
        (one, shelf), (two, same) = offices.of(store, "one"), offices.of(store, "two")
        assert shelf is same
        assert (one is two) is takes_turns
