"""What a group has behind it in a window, on every store and without a table."""

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Message
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import Chosen
from dagster_bus.core.ranges import Place, Ranges, covering
from dagster_bus.core.recomputing import Past
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.core.store import Store, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import DAILY, HOUR_MS, HOURLY
from dagster_bus.errors import EventRefused, EventsGone
from tests.support.builders import START_MS, FakeClock, begin, group_config, numbers, open_bus

AT = TopicPartition("orders", 0)
WINDOW = HOURLY.at(START_MS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(store: Store, clock: FakeClock) -> Bus:
    return open_bus(store, clock, group_config(max_events=4), partitions=1)


def span(first: int, last: int) -> OffsetRange:
    return OffsetRange("orders", 0, first, last)


def nowhere(_: Delivery) -> bool:
    return False


def refused(*offsets: int) -> list[Failed]:
    places = [Place("orders", 0, offset) for offset in offsets]
    return [Failed(covering(places), EventRefused("too large"))]


def settle_all(group: Group) -> None:
    while taken := group.take("run"):
        for held in taken:
            group.settle(held)


def test_what_is_open_or_not_taken_or_dead_is_still_to_come(bus: Bus) -> None:
    group = bus.group("readers")
    bus.publish_many("orders", numbers(14))
    group.settle(begin(group))
    held = begin(group)
    letters: Ranges = (span(6, 6),)
    group.report(held, Report(refused=(Failed(letters, EventRefused("no")),)))
    group.hand_back(begin(group))
    past = group.past(WINDOW, nowhere)
    assert past == Past(
        ranges=(span(1, 4),), redriven=(), events=[], committed=(), to_come=9, dead=1
    )
    committed = group.past(WINDOW, lambda each: each.id == held.id)
    assert committed.ranges == (span(1, 5), span(7, 8))
    assert committed.committed == (held.id,)
    assert (committed.to_come, committed.dead) == (6, 1)


def test_a_window_has_its_own_events_only_and_what_the_group_skipped(
    store: Store, clock: FakeClock
) -> None:
    config = group_config(start="latest")
    bus = open_bus(store, clock, config, partitions=1)
    group = bus.group("readers")
    earlier = [Message({"n": n}, ts=START_MS - HOUR_MS) for n in range(3)]
    bus.publish_many("orders", [*earlier, *numbers(2)])
    assert group.take("run") == []
    assert group.past(HOURLY.at(START_MS - HOUR_MS), nowhere).ranges == (span(1, 3),)
    assert group.past(WINDOW, nowhere).ranges == (span(4, 5),)
    assert group.past(HOURLY.at(START_MS + HOUR_MS), nowhere).size == 0


def test_what_was_sent_back_and_done_is_read_as_it_was_sent(bus: Bus) -> None:
    group, letters = bus.group("readers"), bus.dead_letters("readers")
    bus.publish_many("orders", numbers(2))
    held = begin(group)
    failed = Failed((span(2, 2),), EventRefused("no"))
    group.report(held, Report(processed=(span(1, 1),), refused=(failed,)))
    list(letters.redrive(patch=[{"op": "add", "path": "/mended", "value": True}]))
    assert group.past(WINDOW, nowhere).to_come == 1
    settle_all(group)
    past = group.past(WINDOW, nowhere)
    assert (past.ranges, past.redriven) == ((span(1, 1),), (span(2, 2),))
    assert [event.payload for event in past.events] == [{"n": 1, "mended": True}]

    assert group.refuse(past, refused(1, 2), WINDOW, "operator") == 2
    assert [each.event.payload for each in letters.list()] == [{"n": 1, "mended": True}, {"n": 0}]
    assert group.progress().tally == Tally(dead_lettered=2)
    assert group.past(WINDOW, nowhere).size == 0


def test_an_event_is_refused_once_whoever_else_does_so(bus: Bus) -> None:
    group = bus.group("readers")
    bus.publish_many("orders", numbers(3))
    settle_all(group)
    past = group.past(WINDOW, nowhere)
    assert group.refuse(past, refused(1, 2), WINDOW, "one") == 2
    assert group.refuse(past, refused(2, 3), WINDOW, "other") == 1
    found = bus.dead_letters("readers").list()
    assert sorted((each.event.offset, each.errors[0].worker) for each in found) == [
        (1, "one"),
        (2, "one"),
        (3, "other"),
    ]
    assert group.progress().tally == Tally(dead_lettered=3)
    assert group.progress().lag == 0
    list(bus.dead_letters("readers").redrive(Chosen(ids=(found[0].id,))))
    settle_all(group)
    assert group.progress().tally == Tally(processed=1, dead_lettered=2)


def test_a_window_that_the_log_may_not_have_in_full_is_refused(
    bus: Bus, store: Store, clock: FakeClock
) -> None:
    group = bus.group("readers")
    bus.publish_many("orders", numbers(4))
    clock.advance(HOUR_MS)
    bus.publish_many("orders", numbers(4))
    settle_all(group)
    store.trim(AT, 3, 100)
    following = HOURLY.at(clock())
    with pytest.raises(EventsGone, match=f"window {WINDOW.key}: the log begins at offset 3"):
        group.past(WINDOW, nowhere)
    assert group.past(following, nowhere).ranges == (span(5, 8),)
    store.trim(AT, 9, 100)
    with pytest.raises(EventsGone, match="the log begins at offset 9"):
        group.past(following, nowhere)
    assert group.past(HOURLY.at(clock() + HOUR_MS), nowhere).size == 0


def test_a_window_that_compaction_has_been_through_is_refused(
    store: Store, clock: FakeClock
) -> None:
    bus = open_bus(store, clock, partitions=1, compacted=True)
    bus.publish_many("orders", [Message({"n": n}, key="k") for n in range(4)])
    settle_all(bus.group("readers"))
    store.compact(AT, 5, 0, 100)
    with pytest.raises(EventsGone, match="compaction has been through"):
        bus.group("readers").past(WINDOW, nowhere)


def test_open_deliveries_keep_their_window_when_the_groups_are_changed(
    store: Store, clock: FakeClock
) -> None:
    hourly = open_bus(store, clock, partitions=1).group("readers")
    daily_bus = open_bus(store, clock, group_config(windows=DAILY), partitions=1)
    daily = daily_bus.group("readers")
    daily_bus.publish_many("orders", numbers(2))
    kept = begin(hourly)
    hourly.hand_back(kept)
    daily_bus.publish_many("orders", numbers(2))
    clock.advance(HOUR_MS)
    daily_bus.publish_many("orders", numbers(1))
    again = begin(daily)
    assert (again.id, again.window) == (kept.id, WINDOW.key)
    new = begin(daily)
    assert (new.window, new.size) == (DAILY.at(START_MS).key, 3)
    day = DAILY.at(START_MS)
    past = daily.past(day, lambda each: each.id == again.id)
    assert past.size == 0, "its rows are in another window of the table"
