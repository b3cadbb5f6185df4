"""Dead letters: found, mended, sent back to the group that failed and to no other, let go."""

import pytest

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Message
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import Chosen
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import LetterState, Store, Tally
from dagster_bus.core.topic import SchemaConfig, SchemaVersion, TopicConfig, TopicPartition
from dagster_bus.errors import InvalidPayloadError, SchemaMismatch, UnknownDeadLetter, UsageError
from dagster_bus.schemas import compile_schema
from tests.support.builders import FakeClock, begin, group_config, numbers, open_bus

DAY_MS = 86_400_000
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(store: Store, clock: FakeClock) -> Bus:
    groups = [group_config(retry=ONCE), group_config(name="others", retry=ONCE)]
    return open_bus(store, clock, *groups)


@pytest.fixture
def group(bus: Bus) -> Group:
    return bus.group("readers")


def bury(bus: Bus, count: int, error: Exception) -> None:
    bus.publish_many("orders", numbers(count))
    bus.group("readers").fail(begin(bus.group("readers")), error)


def payloads(group: Group, held: Delivery) -> list[object]:
    return sorted((event.payload for event in group.events(held)), key=str)


def test_letters_are_found_by_error_topic_and_time(
    store: Store, bus: Bus, clock: FakeClock
) -> None:
    bury(bus, 3, ValueError("bad amount 17"))
    clock.advance(1_000)
    bury(bus, 2, KeyError("customer"))
    letters = bus.dead_letters("readers")
    counts = letters.counts()
    assert list(counts.values()) == [3, 2]
    common, rare = counts
    assert [x.errors[-1].type for x in letters.list(Chosen(fingerprint=rare))] == ["KeyError"] * 2
    assert len(letters.list(Chosen(died_from_ms=clock()))) == 2
    assert len(letters.list(Chosen(died_before_ms=clock()))) == 3
    assert len(letters.list(Chosen(topic="orders", fingerprint=common))) == 3
    assert letters.list(Chosen(topic="stock")) == []
    newest = letters.list(limit=1)[0]
    assert letters.list(Chosen(ids=(newest.id,))) == [newest]
    assert letters.show(newest.id) == newest
    with pytest.raises(UnknownDeadLetter, match="no dead letter 999"):
        letters.show(999)


def test_a_redriven_event_goes_to_the_failing_group_only_and_starts_fresh(
    bus: Bus, group: Group
) -> None:
    bury(bus, 4, ValueError("bad"))
    letters = bus.dead_letters("readers")
    two = tuple(letter.id for letter in letters.list(limit=2))
    (sent,) = letters.redrive(Chosen(ids=two))
    assert {letter.id for letter in sent} == set(two)
    progress = group.progress()
    assert progress.tally == Tally(dead_lettered=2)
    assert (progress.waiting, progress.lag) == (2, 2)
    held = begin(group)
    assert (held.attempt, held.errors, held.redriven) == (1, (), True)
    assert len(payloads(group, held)) == 2
    group.settle(held)
    assert group.progress().tally == Tally(processed=2, dead_lettered=2)
    assert group.reserve() == []
    assert [each.state for each in letters.list(state=LetterState.REDRIVEN)] == ["redriven"] * 2
    assert sum(letters.counts().values()) == 2
    assert bus.group("others").progress().lag == 4, "others have their own way"


def test_cursors_do_not_move_for_what_is_redriven(bus: Bus, group: Group) -> None:
    bury(bus, 4, ValueError("bad"))
    before = group.progress().cursors
    list(bus.dead_letters("readers").redrive())
    assert group.progress().cursors == before


def test_a_letter_that_dies_again_is_dead_with_its_new_story(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bury(bus, 2, ValueError("first"))
    letters = bus.dead_letters("readers")
    list(letters.redrive())
    clock.advance(1_000)
    group.fail(begin(group), KeyError("second"))
    assert group.progress().tally == Tally(dead_lettered=2)
    assert [[error.type for error in each.errors] for each in letters.list()] == [["KeyError"]] * 2
    assert sum(letters.counts().values()) == 2
    list(letters.redrive())
    group.settle(begin(group))
    assert group.progress().tally == Tally(processed=2)


def test_letters_outlive_the_log(store: Store, bus: Bus, group: Group) -> None:
    bury(bus, 4, ValueError("bad"))
    for number in (0, 1):
        store.trim(TopicPartition("orders", number), 3, 100)
    list(bus.dead_letters("readers").redrive())
    assert payloads(group, begin(group)) == [{"n": n} for n in range(4)]


def test_a_dry_run_sends_nothing(bus: Bus, group: Group) -> None:
    bury(bus, 3, ValueError("bad"))
    (would,) = bus.dead_letters("readers").redrive(dry_run=True)
    assert len(would) == 3
    assert group.reserve() == []
    assert group.progress().tally == Tally(dead_lettered=3)


def test_all_of_one_error_are_sent_back_together(bus: Bus, group: Group) -> None:
    bury(bus, 3, ValueError("bad"))
    bury(bus, 2, KeyError("worse"))
    letters = bus.dead_letters("readers")
    common, rare = letters.counts()
    list(letters.redrive(Chosen(fingerprint=common)))
    assert letters.counts() == {rare: 2}
    assert begin(group).size == 3


def test_a_rate_spreads_the_deliveries_over_time(bus: Bus, group: Group, clock: FakeClock) -> None:
    bury(bus, 6, ValueError("bad"))
    steps = list(bus.dead_letters("readers").redrive(per_second=2))
    assert [len(step) for step in steps] == [2, 2, 2]
    for _ in range(3):
        held = begin(group)
        assert held.size == 2
        group.settle(held)
        assert group.reserve() == []
        clock.advance(1_000)
    assert group.progress().lag == 0


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_is_positive(bus: Bus, rate: int) -> None:
    with pytest.raises(UsageError, match="more than 0"):
        list(bus.dead_letters("readers").redrive(per_second=rate))


def test_a_patch_mends_the_payload(bus: Bus, group: Group) -> None:
    bury(bus, 2, ValueError("bad"))
    patch = [{"op": "add", "path": "/fixed", "value": True}]
    letters = bus.dead_letters("readers")
    list(letters.redrive(patch=patch))
    held = begin(group)
    assert payloads(group, held) == [{"fixed": True, "n": 0}, {"fixed": True, "n": 1}]
    (one, _) = letters.list(state=LetterState.REDRIVEN)
    assert "fixed" not in one.event.payload, "the letter itself is as it was"
    assert one.patched is not None


def test_a_patched_letter_that_dies_again_keeps_the_patch(bus: Bus, group: Group) -> None:
    bury(bus, 1, ValueError("bad"))
    letters = bus.dead_letters("readers")
    list(letters.redrive(patch=[{"op": "replace", "path": "/n", "value": 7}]))
    group.fail(begin(group), ValueError("again"))
    (letter,) = letters.list()
    assert (letter.event.payload, letter.event.payload_sha256) == ({"n": 7}, None)


def test_a_patch_that_does_not_fit_changes_nothing(bus: Bus) -> None:
    bury(bus, 2, ValueError("bad"))
    letters = bus.dead_letters("readers")
    with pytest.raises(InvalidPayloadError, match="does not fit"):
        list(letters.redrive(patch=[{"op": "remove", "path": "/nothing"}]))
    assert len(letters.list()) == 2


def test_a_patched_payload_must_fit_its_topics_schema(store: Store, clock: FakeClock) -> None:
    fields = SchemaVersion("fields", {"n": "int not null"})
    topic = TopicConfig("orders", schema=SchemaConfig({1: fields}, 1, strict=True))
    store.declare([topic])
    config = group_config(retry=ONCE)
    bus = Bus(store, [topic], [config], clock, compile_schema=compile_schema)
    bury(bus, 2, ValueError("bad"))
    letters = bus.dead_letters("readers")
    with pytest.raises(SchemaMismatch):
        list(letters.redrive(patch=[{"op": "replace", "path": "/n", "value": "seven"}]))
    assert len(letters.list()) == 2


def test_letters_that_are_named_must_all_be_there(bus: Bus) -> None:
    bury(bus, 1, ValueError("bad"))
    letters = bus.dead_letters("readers")
    (letter,) = letters.list()
    with pytest.raises(UnknownDeadLetter, match="no dead letter 77"):
        list(letters.redrive(Chosen(ids=(letter.id, 77))))
    list(letters.redrive(Chosen(ids=(letter.id,))))
    with pytest.raises(UnknownDeadLetter, match="sent back already"):
        list(letters.redrive(Chosen(ids=(letter.id,))))


def test_events_of_several_windows_go_back_in_deliveries_of_their_own(
    bus: Bus, group: Group, clock: FakeClock
) -> None:
    bury(bus, 2, ValueError("bad"))
    clock.advance(3_600_000)
    bury(bus, 3, ValueError("bad"))
    list(bus.dead_letters("readers").redrive())
    first, second = group.reserve()
    assert first.window != second.window
    assert {first.size, second.size} == {2, 3}


def test_purging_lets_go_of_the_old_ones(bus: Bus, group: Group, clock: FakeClock) -> None:
    bury(bus, 3, ValueError("old"))
    clock.advance(2 * DAY_MS)
    bury(bus, 2, KeyError("new"))
    letters = bus.dead_letters("readers")
    assert letters.purge(3 * DAY_MS) == 0
    assert letters.purge(2 * DAY_MS) == 3
    assert [each.errors[-1].type for each in letters.list()] == ["KeyError"] * 2
    assert list(letters.counts().values()) == [2]
    assert group.progress().tally == Tally(dead_lettered=5), "the account still counts them"
    assert group.progress().lag == 0


def test_what_is_on_its_way_back_is_not_purged(bus: Bus, group: Group, clock: FakeClock) -> None:
    bury(bus, 3, ValueError("bad"))
    letters = bus.dead_letters("readers")
    list(letters.redrive())
    clock.advance(DAY_MS)
    assert letters.purge(1_000) == 0
    held = begin(group)
    assert len(payloads(group, held)) == 3
    group.settle(held)
    assert letters.purge(1_000) == 3


def test_the_number_of_a_purged_letter_is_not_given_again(bus: Bus, clock: FakeClock) -> None:
    bury(bus, 2, ValueError("bad"))
    letters = bus.dead_letters("readers")
    before = {letter.id for letter in letters.list()}
    clock.advance(DAY_MS)
    assert letters.purge(1_000) == 2
    bury(bus, 1, ValueError("bad"))
    (letter,) = letters.list()
    assert letter.id > max(before)


def test_an_event_that_died_twice_goes_back_twice(bus: Bus, group: Group) -> None:
    bury(bus, 1, ValueError("bad"))
    group.seek("earliest")
    group.fail(begin(group), ValueError("bad again"))
    assert group.progress().tally == Tally(dead_lettered=2)
    list(bus.dead_letters("readers").redrive())
    for each in group.reserve():
        group.settle(group.lease(each.id, reservation=each.reservation, worker="run"))
    assert group.progress().tally == Tally(processed=2)
    assert group.progress().lag == 0


def test_a_clock_that_went_back_hides_no_letter_from_purging(bus: Bus, clock: FakeClock) -> None:
    bury(bus, 1, ValueError("by a clock that was ahead"))
    clock.now_ms -= 2 * DAY_MS
    bury(bus, 1, ValueError("later, and with an earlier time"))
    clock.advance(2 * DAY_MS)
    letters = bus.dead_letters("readers")
    assert letters.purge(DAY_MS) == 1
    assert [each.errors[-1].message for each in letters.list()] == ["by a clock that was ahead"]


def test_a_page_of_many(bus: Bus) -> None:
    bury(bus, 60, ValueError("bad"))
    letters = bus.dead_letters("readers")
    first = letters.list(limit=40)
    rest = letters.list(limit=40, before=first[-1].id)
    assert len({letter.id for letter in [*first, *rest]}) == 60


def test_messages_keep_all_that_they_had(store: Store, bus: Bus, group: Group) -> None:
    message = Message({"n": 1}, key="k", source="till", attributes={"a": 1}, priority="high")
    bus.publish_many("orders", [message])
    group.fail(begin(group), ValueError("bad"))
    list(bus.dead_letters("readers").redrive())
    (event,) = group.events(begin(group))
    (original,) = (e for p in (0, 1) for e in bus.read("orders", p))
    assert event == original


def test_letters_are_mirrored_to_the_topic_that_is_declared_for_them(
    store: Store, clock: FakeClock
) -> None:
    topics = [TopicConfig("orders", 2), TopicConfig("stock"), TopicConfig("orders.dlq", 2)]
    store.declare(topics)
    config = group_config(topics=("orders", "stock"), retry=ONCE)
    watching = group_config(name="watching", topics=("orders.dlq",), retry=ONCE)
    bus = Bus(store, topics, [config, watching], clock)
    (at,) = bus.publish_many("orders", [Message({"n": 1}, key="k", attributes={"channel": "web"})])
    bus.publish("stock", {"n": 2})
    group = bus.group("readers")
    for _ in range(2):
        bus.publish("orders.dlq", "an event of somebody's own")
    group.fail(begin(group), ValueError("bad \ud800"))
    (mirrored,) = (e for p in (0, 1) for e in bus.read("orders.dlq", p) if e.key == "k")
    assert mirrored.payload == {"n": 1}
    assert mirrored.attributes == {
        "channel": "web",
        "dlq.topic": "orders",
        "dlq.partition": at.partition,
        "dlq.offset": at.offset,
        "dlq.id": at.id,
        "dlq.group": "readers",
        "dlq.fingerprint": bus.dead_letters("readers").list()[0].fingerprint,
        "dlq.attempts": 1,
        "dlq.error": "ValueError: bad ?",
    }
    bus.publish("orders.dlq", "and another one")
    ends = [each.end - 1 for at, each in bus.bounds("orders.dlq").items()]
    assert sum(ends) == 4, "offsets stay dense"
    watcher = bus.group("watching")
    watcher.fail(begin(watcher), ValueError("worse"))
    assert sum(each.end - 1 for each in bus.bounds("orders.dlq").values()) == 4, "no loop"
    assert len(bus.dead_letters("watching").list()) == 4
