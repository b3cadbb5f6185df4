"""Idempotency keys on every store: said twice, appended once."""

import threading
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.bus import Bus
from dagster_bus.core.dedup import Known, sift
from dagster_bus.core.event import Batch, Message, Published
from dagster_bus.core.store import Store
from dagster_bus.core.topic import OffsetRange, TopicConfig
from tests.support.builders import START_MS, FakeClock, append, new_batch

MINUTE_MS = 60_000
ALL = 1 << 39


def keyed(
    *keys: str | None,
    topic: str = "orders",
    dedup_ms: int = MINUTE_MS,
    times: Sequence[int] | None = None,
) -> Batch:
    return new_batch(
        topic, [0] * len(keys), idempotency_keys=list(keys), dedup_ms=dedup_ms, times=times
    )


def count(store: Store) -> int:
    return sum(1 for _ in store.iterate(OffsetRange("orders", 0, 1, ALL)))


def test_a_repeated_key_gets_the_first_events_place_and_is_told_so(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    (first,) = append(store, keyed("a"))
    (again,) = append(store, keyed("a"), START_MS + 5)
    assert not first.duplicate
    assert again == first._replace(duplicate=True)
    assert count(store) == 1


def test_a_key_may_be_repeated_within_a_batch_among_others(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    append(store, keyed("old"))
    published = append(store, keyed("a", None, "old", "a", "b", None))
    assert [(at.offset, at.duplicate) for at in published] == [
        (2, False), (3, False), (1, True), (2, True), (4, False), (5, False),
    ]  # fmt: skip
    assert count(store) == 5


def test_publishers_that_are_written_together_are_told_apart(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    (mine,), (yours,) = store.append([keyed("a"), keyed("a")], START_MS)
    assert (mine.duplicate, yours.duplicate) == (False, True)
    assert yours.id == mine.id
    assert count(store) == 1


def test_a_key_is_forgotten_when_its_window_is_over(store: Store) -> None:
    store.declare([TopicConfig("orders")])
    append(store, keyed("a"))
    (inside,) = append(store, keyed("a"), START_MS + MINUTE_MS - 1)
    (outside,) = append(store, keyed("a"), START_MS + MINUTE_MS)
    assert (inside.duplicate, outside.duplicate) == (True, False)
    (anew,) = append(store, keyed("a"), START_MS + 2 * MINUTE_MS - 1)
    assert anew == outside._replace(duplicate=True)


def test_events_of_another_log_are_judged_by_their_own_time(store: Store) -> None:
    """What was accepted there is accepted here: the key came again when its window was over."""
    store.declare([TopicConfig("orders")])
    times = [START_MS - 3 * MINUTE_MS, START_MS - 2 * MINUTE_MS, START_MS - 2 * MINUTE_MS + 1]
    published = append(store, keyed("a", "a", "a", times=times))
    assert [at.duplicate for at in published] == [False, False, True]
    (later,) = append(store, keyed("a", times=[START_MS - MINUTE_MS]))
    assert not later.duplicate


def test_the_place_in_the_log_does_not_decide_about_events_of_another_log(store: Store) -> None:
    """Their times are moved behind an event of now; whether they repeat is judged by their own."""
    store.declare([TopicConfig("orders")])
    append(store, new_batch("orders"))
    for day in range(5, 0, -1):
        (at,) = append(store, keyed("a", times=[START_MS - day * 86_400_000]))
        assert (at.duplicate, at.ts) == (False, START_MS)


def test_topics_have_keys_of_their_own_and_may_have_no_window(store: Store) -> None:
    store.declare([TopicConfig("orders"), TopicConfig("other")])
    append(store, keyed("a"))
    (other,) = append(store, keyed("a", topic="other"))
    (off,) = append(store, keyed("a", dedup_ms=0))
    assert not other.duplicate
    assert not off.duplicate


def test_of_threads_that_say_the_same_one_is_first(store: Store) -> None:
    config = TopicConfig("orders", 4)
    store.declare([config])
    bus = Bus(store, [config], clock=FakeClock())
    said: list[Published] = []

    def publish() -> None:
        for n in range(20):
            said.extend(bus.publish_many("orders", [Message(n, idempotency_key=str(n))]))

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not at.duplicate for at in said) == 20
    assert len({at.id for at in said}) == 20
    assert sum(1 for _ in bus.tail("orders")) == 20


@given(st.lists(st.one_of(st.none(), st.sampled_from("abcd"))), st.sets(st.sampled_from("abcd")))
def test_every_event_is_answered_and_every_key_is_fresh_once(
    keys: list[str | None], known_keys: set[str]
) -> None:
    known = {key: Known(Published("orders", 0, 1, key, 5), 5) for key in known_keys}
    sifted = sift(keyed(*keys), known, 5)
    fresh_keys = sifted.fresh.idempotency_keys
    assert len(set(fresh_keys) - {None}) == len([key for key in fresh_keys if key])
    places = [Published("orders", 0, 9, id, 6) for id in sifted.fresh.ids]
    answers = sifted.published(places)
    assert len(answers) == len(keys)
    assert [at for at in answers if not at.duplicate] == places
    for key, at in zip(keys, answers, strict=True):
        if key in known_keys:
            assert (at.id, at.duplicate) == (key, True)
