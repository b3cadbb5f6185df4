"""Handlers on every store: called with each event, again if they fail, in order, and stopped."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from dagster_bus.core.delivery import OnExhausted
from dagster_bus.core.event import Event, Message
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.groups import Group
from dagster_bus.core.position import AtOffset
from dagster_bus.core.recovering import Worker as WorkerState
from dagster_bus.core.retry import BreakerPolicy, RetryPolicy
from dagster_bus.core.store import Store, Tally
from dagster_bus.core.topic import EventFilter, TopicConfig
from dagster_bus.errors import BusClosedError, LeaseLost, UnknownTopic, UsageError
from dagster_bus.live.options import checked, group_config
from dagster_bus.live.taking import set_apart
from dagster_bus.live.tasks import TaskQueue
from dagster_bus.live.telling import Teller
from dagster_bus.live.worker import Worker
from dagster_bus.opening import Bus
from dagster_bus.stores import open_memory_store, open_store

LONG_S = 60.0
"""Far longer than anything here takes."""

TOPICS = [
    TopicConfig("orders.created", 1),
    TopicConfig("orders.paid", 1),
    TopicConfig("keyed", 2, compacted=True),
]
CONTROL = TopicConfig("control", durable=False, dedup_ms=0)
QUICK = {"base_delay_ms": 40}

OpenBus = Callable[..., Bus]


class Seen:
    """What handlers were called with, from whatever thread."""

    def __init__(self, fail: Callable[[Any], bool] = lambda _: False) -> None:
        self._changed = threading.Condition()
        self._fail = fail
        self.payloads: list[Any] = []
        self.times: list[float] = []

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.payloads.append(event.payload)
            self.times.append(time.monotonic())
            self._changed.notify_all()
        if self._fail(event.payload):
            raise ValueError(f"bad {self.payloads.count(event.payload)}")

    def wait(self, count: int) -> list[Any]:
        """All payloads, as soon as there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.payloads) >= count, LONG_S), (
                f"only {self.payloads}"
            )
            return [*self.payloads]


class Gate:
    """A handler that waits until it may go on."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.may_go_on = threading.Event()

    def __call__(self, event: Event) -> None:
        self.seen(event)
        assert self.may_go_on.wait(LONG_S)


@pytest.fixture
def open_bus(store_url: str) -> Iterator[OpenBus]:
    """Each bus has its own connection to the store, as in a process of its own."""
    opened: list[Bus] = []

    def bus(*groups: GroupConfig) -> Bus:
        store, memory = open_store(store_url), open_memory_store()
        store.declare(TOPICS)
        memory.declare([CONTROL])
        opened.append(Bus(store, [*TOPICS, CONTROL], groups, memory=memory))
        return opened[-1]

    yield bus
    for each in opened:
        each.close(0)


@pytest.fixture
def bus(open_bus: OpenBus) -> Bus:
    return open_bus()


def payloads_of_letters(bus: Bus, group: str) -> list[Any]:
    return sorted(letter.event.payload for letter in bus.dead_letters(group).list())


def test_each_event_is_handled_and_settled(bus: Bus) -> None:
    seen = Seen()
    bus.publish("orders.created", 0)
    bus.subscribe("orders.*", seen, group="readers")
    bus.publish_many("orders.paid", range(1, 300))
    assert bus.idle(LONG_S)
    assert sorted(seen.payloads) == list(range(300))
    assert seen.payloads[1:] == sorted(seen.payloads[1:]), "the events of a partition in order"
    progress = bus.group("readers").progress()
    assert (progress.tally, progress.lag) == (Tally(processed=300), 0)


def test_events_of_others_wake_handlers_at_once(open_bus: OpenBus) -> None:
    """Whoever only looked now and then would find one every half second."""
    listening, other = open_bus(), open_bus()
    in_group, alone = Seen(), Seen()
    listening.subscribe("orders.created", in_group, group="readers")
    listening.subscribe("orders.created", alone)
    other.publish("orders.created", 0)
    in_group.wait(1)
    alone.wait(1)
    begun = time.monotonic()
    for n in range(1, 21):
        other.publish("orders.created", n)
        in_group.wait(n + 1)
        alone.wait(n + 1)
    assert time.monotonic() - begun < 5


def test_groups_side_by_side_each_get_every_event_once_and_in_order(bus: Bus) -> None:
    """While their workers share a thread, transactions, and what they have read."""
    readers = [Seen() for _ in range(5)]
    for number, seen in enumerate(readers):
        bus.subscribe("orders.created", seen, group=f"readers-{number}")
    for n in range(100):
        bus.publish("orders.created", n)
    assert bus.idle(LONG_S)
    for number, seen in enumerate(readers):
        assert seen.payloads == [*range(100)]
        progress = bus.group(f"readers-{number}").progress()
        assert (progress.tally, progress.lag) == (Tally(processed=100), 0)


def test_workers_of_one_group_in_one_process_share_its_events(bus: Bus) -> None:
    one, two = Seen(), Seen()
    bus.subscribe("orders.created", one, group="readers")
    bus.subscribe("orders.created", two, group="readers")
    for n in range(200):
        bus.publish("orders.created", n)
    assert bus.idle(LONG_S)
    assert sorted(one.payloads + two.payloads) == [*range(200)]
    assert bus.group("readers").progress().tally == Tally(processed=200)


def test_a_handler_that_is_stuck_holds_up_no_other_group(bus: Bus) -> None:
    gate, seen = Gate(), Seen()
    bus.subscribe("orders.created", gate, group="stuck")
    bus.subscribe("orders.created", seen, group="readers")
    for n in range(20):
        bus.publish("orders.created", n)
    assert seen.wait(20) == [*range(20)]
    assert gate.seen.wait(1) == [0]
    gate.may_go_on.set()
    assert bus.idle(LONG_S)
    assert gate.seen.payloads == [*range(20)]


def test_a_group_goes_on_where_it_was_when_its_subscriber_comes_back(bus: Bus) -> None:
    first, second = Seen(), Seen()
    subscription = bus.subscribe("orders.created", first, group="readers")
    bus.publish_many("orders.created", range(10))
    assert bus.idle(LONG_S)
    subscription.unsubscribe()
    bus.publish_many("orders.created", range(10, 20))
    bus.subscribe("orders.created", second, group="readers")
    assert second.wait(10) == list(range(10, 20))
    assert first.payloads == list(range(10))


def test_a_group_can_begin_at_the_end_or_at_an_offset(bus: Bus) -> None:
    bus.publish_many("orders.created", range(10))
    latest, middle = Seen(), Seen()
    bus.subscribe("orders.created", latest, group="latest", start="latest")
    bus.subscribe("orders.created", middle, group="middle", start=AtOffset(8))
    bus.publish("orders.created", 10)
    assert bus.idle(LONG_S)
    assert (latest.payloads, middle.payloads) == ([10], [7, 8, 9, 10])


def test_where_a_group_begins_is_fixed_when_it_is_subscribed_to(bus: Bus) -> None:
    """And not when its worker comes to look."""
    seen = Seen()
    options = checked({"group": "readers", "start": "latest"})
    config = group_config(options, ("orders.created",), None)
    teller = Teller("late", "orders.created", options, bus._shared)
    bus.publish("orders.created", "before")
    worker = Worker(teller, seen, config, bus._store)
    bus.publish("orders.created", "after")
    worker.start(lambda: None)
    assert seen.wait(1) == ["after"]
    worker.stop(LONG_S)
    assert worker.join(LONG_S)


def test_a_failed_event_is_tried_again_after_longer_and_longer_waits(bus: Bus) -> None:
    seen = Seen(fail=lambda n: n == 1 and seen.payloads.count(1) < 4)
    bus.subscribe("orders.created", seen, group="readers", retry={"base_delay_ms": 60})
    bus.publish_many("orders.created", [0, 1, 2])
    assert sorted(seen.wait(6)) == [0, 1, 1, 1, 1, 2]
    times = [at for n, at in zip(seen.payloads, seen.times, strict=True) if n == 1]
    for earlier, later, wait_s in zip(times, times[1:], (0.06, 0.12, 0.24), strict=False):
        assert later - earlier >= wait_s - 0.005
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=3)
    assert bus.counters()["orders.created"] == {
        "published": 3,
        "schema_rejected": 0,
        "delivered": 6,
        "acked": 3,
        "redelivered": 3,
        "handler_threw": 3,
        "disabled_by_backpressure": 0,
        "disabled_by_hand": 0,
        "in_flight": 0,
    }


def test_after_the_last_attempt_an_event_is_a_dead_letter_with_the_error_of_each(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen(fail=lambda n: n == 1)
    retry = {"max_attempts": 3, "base_delay_ms": 10}
    with caplog.at_level(logging.WARNING, "dagster_bus"):
        bus.subscribe("orders.created", seen, group="readers", retry=retry)
        bus.publish_many("orders.created", [0, 1, 2])
        seen.wait(5)
        assert bus.idle(LONG_S)
    (letter,) = bus.dead_letters("readers").list()
    assert letter.event.payload == 1
    assert [(error.attempt, error.type, error.message) for error in letter.errors] == [
        (1, "ValueError", "bad 1"),
        (2, "ValueError", "bad 2"),
        (3, "ValueError", "bad 3"),
    ]
    assert bus.group("readers").progress().tally == Tally(processed=2, dead_lettered=1)
    entries = [vars(record) for record in caplog.records]
    assert [
        (each["group"], each["topic"], each["offset"], each["attempt"], each["error"])
        for each in entries
    ] == [
        ("readers", "orders.created", 2, n, f"ValueError: bad {n}") for n in (1, 2, 3)
    ]  # fmt: skip


def test_events_that_fail_with_the_same_words_wait_together(bus: Bus, store: Store) -> None:
    def down(event: Event) -> None:
        raise ConnectionError("the mail server is down")

    bus.publish_many("orders.created", range(200))
    bus.subscribe("orders.created", down, group="readers", retry={"base_delay_ms": 600_000})
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().waiting == 200
    assert len(store.open_deliveries("readers")) < 40


def test_a_redriven_dead_letter_comes_back_to_the_handler(bus: Bus) -> None:
    seen = Seen(fail=lambda _: len(seen.payloads) == 1)
    bus.subscribe("orders.created", seen, group="readers", retry={"max_attempts": 1})
    bus.publish("orders.created", "again")
    seen.wait(1)
    assert bus.idle(LONG_S)
    assert [len(step) for step in bus.dead_letters("readers").redrive()] == [1]
    seen.wait(2)
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=1)


def test_a_handler_that_overruns_has_failed_and_its_late_result_counts_for_nothing(
    bus: Bus,
) -> None:
    late = Gate()
    handler = late_then_fine(late)
    bus.subscribe("orders.created", handler, group="readers", timeout=0.1, retry=QUICK)
    bus.publish_many("orders.created", [1, 2])
    late.seen.wait(3)
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=2)
    late.may_go_on.set()
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=2)
    assert bus.counters()["orders.created"]["handler_threw"] == 1


def late_then_fine(late: Gate) -> Callable[[Event], None]:
    def handler(event: Event) -> None:
        if late.seen.payloads:
            late.seen(event)
        else:
            late(event)

    return handler


def test_a_handler_that_always_overruns_ends_among_the_dead_letters(bus: Bus) -> None:
    async def sleeper(event: Event) -> None:
        await asyncio.sleep(LONG_S)

    retry = RetryPolicy(max_attempts=2, base_delay_ms=1, jitter="none")
    bus.subscribe("orders.created", sleeper, group="readers", timeout=0.05, retry=retry)
    bus.publish("orders.created", 1)
    wait_until(lambda: bus.idle(LONG_S) and bool(bus.dead_letters("readers").list()))
    (letter,) = bus.dead_letters("readers").list()
    assert [error.type for error in letter.errors] == ["HandlerTimeout", "HandlerTimeout"]
    assert "longer than 0.05 s" in letter.errors[0].message


def wait_until(what: Callable[[], bool]) -> None:
    """Ask again and again, for a bounded time."""
    deadline = time.monotonic() + LONG_S
    while not what():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_asynchronous_handlers_run_together_on_one_loop(bus: Bus) -> None:
    seen: list[int] = []
    threads = set()
    all_here = asyncio.Event()

    async def handler(event: Event) -> None:
        seen.append(event.payload)
        threads.add(threading.current_thread().name)
        if len(seen) == 3:
            all_here.set()
        await all_here.wait()

    bus.subscribe("orders.created", handler, group="readers", max_inflight=3)
    bus.publish_many("orders.created", [1, 2, 3])
    assert bus.idle(LONG_S)
    assert (sorted(seen), threads) == ([1, 2, 3], {"bus-loop"})
    assert bus.group("readers").progress().tally == Tally(processed=3)


def test_several_events_are_handled_at_once_if_asked_for(bus: Bus) -> None:
    together = threading.Barrier(3)
    bus.subscribe(
        "orders.created", lambda _: together.wait(LONG_S), group="readers", max_inflight=3
    )
    bus.publish_many("orders.created", [1, 2, 3])
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=3)


def test_one_handler_that_is_stuck_does_not_hold_up_the_others(bus: Bus) -> None:
    gate, seen = Gate(), Seen()

    def handler(event: Event) -> None:
        (gate if event.payload == "stuck" else seen)(event)

    bus.subscribe("orders.created", handler, group="readers", max_inflight=2)
    bus.publish("orders.created", "stuck")
    gate.seen.wait(1)
    for n in range(20):
        bus.publish("orders.created", n)
        seen.wait(n + 1)
    gate.may_go_on.set()
    assert bus.idle(LONG_S)


def test_what_the_group_or_the_subscription_does_not_want_is_filtered(open_bus: OpenBus) -> None:
    seen = Seen()
    wanted = EventFilter({"channel": "web"})
    bus = open_bus(GroupConfig("readers", ("orders.created",), filter=wanted))
    bus.publish("orders.created", 0, attributes={"channel": "web", "tier": 1})
    bus.publish("orders.created", 1, attributes={"channel": "web", "tier": True})
    bus.publish("orders.created", 2, attributes={"tier": 1})
    bus.publish("orders.created", 3, attributes={"channel": "web", "tier": 1})
    bus.subscribe("orders.created", seen, group="readers", filter={"tier": 1})
    assert bus.idle(LONG_S)
    assert seen.payloads == [0, 3]
    assert bus.group("readers").progress().tally == Tally(processed=2, filtered=2)


def test_an_event_whose_time_is_over_is_not_delivered(bus: Bus) -> None:
    seen = Seen()
    bus.publish_many(
        "orders.created", [Message(1, ttl_s=1, ts=1_740_000_000_000), Message(2, ttl_s=600)]
    )
    bus.subscribe("orders.created", seen, group="readers")
    assert bus.idle(LONG_S)
    assert seen.payloads == [2]
    assert bus.group("readers").progress().tally == Tally(processed=1, expired=1)


def test_what_compaction_took_out_of_a_delivery_is_not_waited_for(bus: Bus) -> None:
    bus.publish_many("keyed", [Message(n, "same") for n in range(20)])
    seen = Seen()
    subscription = bus.subscribe("keyed", seen, group="early", start="latest")
    bus.maintain("keyed")
    subscription.unsubscribe()
    bus.subscribe("keyed", seen, group="readers")
    assert bus.idle(LONG_S)
    tally = bus.group("readers").progress().tally
    assert (tally.processed, tally.settled) == (len(seen.payloads), 20)
    assert tally.filtered > 0


def test_events_of_a_key_wait_behind_one_that_failed_and_the_rest_goes_on(bus: Bus) -> None:
    seen = Seen(fail=lambda name: name == "a1" and seen.payloads.count("a1") < 3)
    bus.publish_many("keyed", [Message(name, name[0]) for name in ("a1", "b1", "a2", "b2", "a3")])
    bus.subscribe("keyed", seen, group="readers", order="key", retry={"base_delay_ms": 200})
    seen.wait(3)
    bus.publish("keyed", "a4", key="a")
    bus.publish("keyed", "c1", key="c")
    names = seen.wait(9)
    assert [name for name in names if name[0] == "a"] == ["a1", "a1", "a1", "a2", "a3", "a4"]
    assert [name for name in names if name[0] == "b"] == ["b1", "b2"]
    assert names.index("b2") < names.index("a2")
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=7)


def test_events_of_a_partition_wait_behind_one_that_failed(bus: Bus) -> None:
    seen = Seen(fail=lambda n: n == 2 and seen.payloads.count(2) < 3)
    bus.publish_many("orders.created", range(5))
    bus.publish_many("orders.paid", [10, 11])
    bus.subscribe("orders.*", seen, group="readers", order="partition", retry=QUICK)
    seen.wait(4)
    bus.publish("orders.created", 5)
    numbers = seen.wait(10)
    assert [n for n in numbers if n < 10] == [0, 1, 2, 2, 2, 3, 4, 5]
    assert [n for n in numbers if n >= 10] == [10, 11]


def test_what_waits_behind_a_dead_letter_goes_on_afresh(bus: Bus) -> None:
    seen = Seen(fail=lambda n: n == 0)
    bus.publish_many("orders.created", range(3))
    retry = {"max_attempts": 2, "base_delay_ms": 10}
    bus.subscribe("orders.created", seen, group="readers", order="partition", retry=retry)
    assert seen.wait(4) == [0, 0, 1, 2]
    assert bus.idle(LONG_S)
    assert payloads_of_letters(bus, "readers") == [0]


@pytest.mark.parametrize("order", ["key", "partition"])
def test_an_event_that_waited_behind_others_has_all_its_attempts(bus: Bus, order: str) -> None:
    """Every seventh fails once, many of them behind another: with two attempts none dies."""
    seen = Seen(fail=lambda n: n % 7 == 0 and seen.payloads.count(n) < 2)
    bus.publish_many("keyed", [Message(n, f"k{n % 3}") for n in range(150)])
    retry = {"max_attempts": 2, "base_delay_ms": 5}
    bus.subscribe("keyed", seen, group="readers", order=order, retry=retry)
    seen.wait(150 + len(range(0, 150, 7)))
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=150)
    by_key = [[n for n in dict.fromkeys(seen.payloads) if n % 3 == key] for key in range(3)]
    assert [numbers == sorted(numbers) for numbers in by_key] == [True] * 3


def test_two_events_of_a_key_are_never_handled_at_once(bus: Bus) -> None:
    at_work: set[str] = set()
    orders: dict[str, list[int]] = {}
    most = [0]
    lock = threading.Lock()

    def handler(event: Event) -> None:
        key = str(event.key)
        with lock:
            assert key not in at_work
            at_work.add(key)
            most[0] = max(most[0], len(at_work))
            orders.setdefault(key, []).append(event.payload)
        threading.Event().wait(0.001)
        with lock:
            at_work.discard(key)

    bus.publish_many("keyed", [Message(n, f"k{n % 5}") for n in range(200)])
    bus.subscribe("keyed", handler, group="readers", order="key", max_inflight=4)
    assert bus.idle(LONG_S)
    assert bus.group("readers").progress().tally == Tally(processed=200)
    assert all(earlier < later for own in orders.values() for earlier, later in pairwise(own))
    assert most[0] > 1


def test_subscribers_of_a_group_share_its_events_and_groups_do_not(bus: Bus) -> None:
    one, two, other = Seen(), Seen(), Seen()
    bus.subscribe("orders.created", one, group="readers")
    bus.subscribe("orders.created", two, group="readers")
    bus.subscribe("orders.created", other, group="others")
    for n in range(30):
        bus.publish("orders.created", n)
    assert bus.idle(LONG_S)
    assert sorted([*one.payloads, *two.payloads]) == list(range(30))
    assert other.payloads == list(range(30))


def test_a_declared_group_is_worked_for_as_declared_but_for_what_is_asked(
    open_bus: OpenBus,
) -> None:
    policy = RetryPolicy(max_attempts=2, base_delay_ms=10, jitter="none")
    bus = open_bus(GroupConfig("readers", ("orders.created",), retry=policy, start="latest"))
    seen = Seen(fail=lambda _: True)
    bus.publish("orders.created", "before")
    bus.subscribe("**", seen, group="readers", retry={"max_attempts": 3})
    bus.publish("orders.created", "after")
    bus.publish("orders.paid", "of another topic")
    wait_until(lambda: bus.idle(LONG_S) and bool(bus.dead_letters("readers").list()))
    assert seen.payloads == ["after"] * 3


def test_the_breaker_of_a_group_pauses_its_subscribers(open_bus: OpenBus) -> None:
    policy = RetryPolicy(max_attempts=1, breaker=BreakerPolicy(2, reset_after_ms=600_000))
    bus = open_bus(GroupConfig("readers", ("orders.created",), retry=policy))
    seen = Seen(fail=lambda _: True)
    bus.subscribe("orders.created", seen, group="readers", queue_capacity=1)
    bus.publish_many("orders.created", range(10))
    assert bus.idle(LONG_S)
    assert len(seen.payloads) < 10
    assert bus.group("readers").progress().lag > 0


def test_one_event_is_enough_for_whoever_subscribes_once(bus: Bus) -> None:
    seen, after = Seen(), Seen()
    bus.publish_many("orders.created", range(5))
    once = bus.subscribe_once("orders.created", seen, group="readers")
    wait_until(lambda: not once.is_active)
    bus.subscribe("orders.created", after, group="readers")
    assert after.wait(4) == [1, 2, 3, 4]
    assert seen.payloads == [0]
    assert [each.id for each in bus.subscriptions] != [once.id]


def test_without_a_group_one_event_is_enough_too(bus: Bus) -> None:
    seen, all_of_them = Seen(), Seen()
    once = bus.subscribe_once("orders.created", seen)
    bus.subscribe("orders.created", all_of_them)
    bus.publish_many("orders.created", range(5))
    assert all_of_them.wait(5) == list(range(5))
    wait_until(lambda: not once.is_active)
    assert seen.payloads == [0]


def test_a_subscriber_without_a_group_gets_what_comes_in_the_order_of_its_topic(bus: Bus) -> None:
    seen, created = Seen(), Seen()
    bus.publish("orders.created", "before")
    bus.subscribe("orders.**", seen)
    bus.subscribe("orders.created", created, filter={"web": True}, max_inflight=4)
    for n in range(100):
        topic = "orders.created" if n % 2 else "orders.paid"
        bus.publish(topic, n, attributes={"web": n < 50})
    assert bus.idle(LONG_S)
    for odd in (0, 1):
        assert [n for n in seen.payloads if n % 2 == odd] == list(range(odd, 100, 2))
    assert created.payloads == list(range(1, 50, 2))


def test_a_subscriber_that_begins_early_reads_the_log_at_its_own_pace(bus: Bus) -> None:
    seen = Seen()
    bus.publish_many("orders.created", range(200))
    reasons: list[str] = []
    bus.subscribe(
        "orders.created", seen, start="earliest", queue_capacity=3, on_disabled=reasons.append
    )
    assert seen.wait(200) == list(range(200))
    assert reasons == []


def test_topics_in_memory_and_durable_ones_can_be_followed_together(bus: Bus) -> None:
    seen = Seen()
    bus.subscribe("*", seen)
    bus.publish("control", "stop")
    bus.publish("orders.created", "order")
    assert sorted(seen.wait(2)) == ["order", "stop"]
    with pytest.raises(UsageError, match="topics in memory"):
        bus.subscribe("control", seen, group="readers")


def test_a_handler_that_fails_disturbs_no_other(bus: Bus) -> None:
    failing, fine, signals = Seen(fail=lambda _: True), Seen(), Seen()
    errors: list[tuple[Any, str]] = []
    bus.subscribe("bus.**", signals)

    def note(event: Event, error: BaseException) -> None:
        errors.append((event.payload, str(error)))

    bus.subscribe("orders.created", failing, on_error=note)
    bus.subscribe("orders.created", fine)
    bus.publish_many("orders.created", range(3))
    assert bus.idle(LONG_S)
    assert failing.payloads == fine.payloads == [0, 1, 2], "each is handed over once"
    assert errors == [(0, "bad 1"), (1, "bad 1"), (2, "bad 1")]
    assert bus.counters()["orders.created"]["handler_threw"] == 3
    signal = signals.wait(3)[0]
    assert (signal["topic"], signal["offset"], signal["error"]) == (
        "orders.created",
        1,
        "ValueError: bad 1",
    )


def test_a_failing_handler_of_signals_makes_no_more_of_them(bus: Bus) -> None:
    signals = Seen(fail=lambda _: True)
    bus.subscribe("bus.handler.*", signals)
    bus.subscribe("orders.created", Seen(fail=lambda _: True))
    bus.publish("orders.created", 1)
    signals.wait(1)
    assert bus.idle(LONG_S)
    assert len(signals.payloads) == 1


def test_a_hook_that_fails_or_hangs_holds_up_no_event(bus: Bus) -> None:
    hanging = threading.Event()
    seen = Seen(fail=lambda n: n < 2)

    def hook(event: Event, error: BaseException) -> None:
        if event.payload == 0:
            raise RuntimeError("a bad hook")
        hanging.wait(LONG_S)

    bus.subscribe("orders.created", seen, on_error=hook)
    bus.publish_many("orders.created", range(5))
    assert seen.wait(5) == [0, 1, 2, 3, 4]
    hanging.set()
    assert bus.idle(LONG_S)


def test_a_subscriber_that_cannot_keep_up_is_disabled_and_publishing_goes_on(bus: Bus) -> None:
    gate, fine, signals = Gate(), Seen(), Seen()
    reasons: list[str] = []
    slow = bus.subscribe("orders.created", gate, queue_capacity=5, on_disabled=reasons.append)
    bus.subscribe("orders.created", fine)
    bus.subscribe("bus.subscriber.disabled", signals)
    bus.publish("orders.created", 0)
    gate.seen.wait(1)
    for n in range(1, 20):
        bus.publish("orders.created", n)
    assert fine.wait(20) == list(range(20))
    (signal,) = signals.wait(1)
    assert (signal["subscription"], signal["topic"]) == (slow.id, "orders.created")
    gate.may_go_on.set()
    wait_until(lambda: not slow.is_active)
    assert bus.idle(LONG_S)
    assert reasons == ["5 events wait, and its queue is full"]
    assert bus.counters()["orders.created"]["disabled_by_backpressure"] == 1
    assert gate.seen.payloads == [0], "it gets none of those that did not fit, nor some of them"


def test_a_full_queue_of_exactly_its_capacity_is_no_overflow(bus: Bus) -> None:
    gate = Gate()
    bus.subscribe("orders.created", gate, queue_capacity=5)
    bus.publish_many("orders.created", range(5))
    gate.seen.wait(1)
    gate.may_go_on.set()
    assert gate.seen.wait(5) == [0, 1, 2, 3, 4]
    assert bus.idle(LONG_S)


def test_idle_waits_for_handlers_and_not_for_other_attempts(bus: Bus) -> None:
    gate = Gate()
    bus.subscribe("orders.created", gate, group="readers")
    later = {"base_delay_ms": 600_000}
    bus.subscribe("orders.paid", Seen(fail=lambda _: True), group="others", retry=later)
    bus.publish("orders.paid", 1)
    bus.publish("orders.created", 1)
    gate.seen.wait(1)
    assert not bus.idle(0.1)
    gate.may_go_on.set()
    assert bus.idle(LONG_S)
    assert bus.group("others").progress().waiting == 1


def test_idle_waits_for_what_may_be_done_beside_an_event_that_is_to_be_tried_again(
    bus: Bus,
) -> None:
    seen = Seen(fail=lambda name: name == "a1")
    later = {"base_delay_ms": 600_000}
    bus.subscribe("keyed", seen, group="readers", order="key", retry=later)
    bus.publish_many("keyed", [Message("a1", "a", partition=0)])
    assert bus.idle(LONG_S)
    bus.publish_many("keyed", [Message("b1", "b", partition=0), Message("a2", "a", partition=0)])
    assert bus.idle(LONG_S)
    assert seen.payloads == ["a1", "b1"]


def test_idle_waits_for_subscribers_without_a_group_and_events_in_memory(bus: Bus) -> None:
    gate = Gate()
    bus.subscribe("control", gate)
    bus.publish_many("control", [1, 2])
    gate.seen.wait(1)
    assert not bus.idle(0.1)
    gate.may_go_on.set()
    assert bus.idle(LONG_S)
    assert gate.seen.payloads == [1, 2]


def test_closing_waits_for_what_is_at_work_and_hands_back_the_rest(open_bus: OpenBus) -> None:
    closing, after = open_bus(), open_bus()
    gate, seen = Gate(), Seen()
    closing.subscribe("orders.created", gate, group="readers")
    closing.publish_many("orders.created", range(10))
    gate.seen.wait(1)
    closer = threading.Thread(target=closing.close)
    closer.start()
    after.subscribe("orders.created", seen, group="readers")
    assert seen.wait(9) == list(range(1, 10)), "handed back while the first is at work"
    assert closer.is_alive()
    gate.may_go_on.set()
    closer.join(LONG_S)
    assert gate.seen.payloads == [0]
    assert after.idle(LONG_S)
    assert after.group("readers").progress().tally == Tally(processed=10)
    assert after.counters()["orders.created"]["redelivered"] == 0, "no attempt was counted"


def test_closing_does_not_wait_for_ever(open_bus: OpenBus) -> None:
    closing, after = open_bus(), open_bus()
    gate, seen = Gate(), Seen()
    closing.subscribe("orders.created", gate, group="readers")
    closing.subscribe("orders.created", gate)
    closing.publish_many("orders.created", [1, 2])
    gate.seen.wait(2)
    begun = time.monotonic()
    closing.close(timeout=0.2)
    assert time.monotonic() - begun < 10
    after.subscribe("orders.created", seen, group="readers")
    assert sorted(seen.wait(2)) == [1, 2]
    gate.may_go_on.set()
    assert after.idle(LONG_S)
    assert after.group("readers").progress().tally == Tally(processed=2)


def test_while_and_after_closing_nothing_new_is_taken(bus: Bus) -> None:
    gate = Gate()
    bus.subscribe("orders.created", gate, group="readers")
    bus.publish("orders.created", 1)
    gate.seen.wait(1)
    closer = threading.Thread(target=bus.close)
    closer.start()
    wait_until(lambda: is_refused(bus))
    for refused in (
        lambda: bus.subscribe("orders.created", gate),
        lambda: bus.subscribe("bus.**", gate),
        lambda: bus.idle(0),
    ):
        with pytest.raises(BusClosedError):
            refused()
    gate.may_go_on.set()
    closer.join(LONG_S)
    assert is_refused(bus)
    bus.close()


def is_refused(bus: Bus) -> bool:
    try:
        bus.publish("orders.paid", 1)
    except BusClosedError:
        return True
    return False


def test_a_handler_that_cannot_publish_because_the_bus_is_closed_has_not_failed(
    open_bus: OpenBus,
) -> None:
    closing, after = open_bus(), open_bus()
    gate, seen = Gate(), Seen()

    def handler(event: Event) -> None:
        gate(event)
        closing.publish("orders.paid", event.payload)

    closing.subscribe("orders.created", handler, group="readers")
    closing.publish("orders.created", 1)
    gate.seen.wait(1)
    closer = threading.Thread(target=closing.close)
    closer.start()
    wait_until(lambda: is_refused(closing))
    gate.may_go_on.set()
    closer.join(LONG_S)
    after.subscribe("orders.created", seen, group="readers")
    assert seen.wait(1) == [1]
    assert after.idle(LONG_S)
    assert after.counters()["orders.created"]["redelivered"] == 0


def test_order_is_kept_when_work_is_handed_back(open_bus: OpenBus) -> None:
    closing, after = open_bus(), open_bus()
    gate, seen = Gate(), Seen()
    closing.subscribe("orders.created", gate, group="readers", order="partition")
    closing.publish_many("orders.created", range(5))
    gate.seen.wait(1)
    closer = threading.Thread(target=closing.close)
    closer.start()
    wait_until(lambda: is_refused(closing))
    after.subscribe("orders.created", seen, group="readers", order="partition")
    assert not after.idle(0.3), "the first is at work still"
    assert seen.payloads == []
    gate.may_go_on.set()
    assert seen.wait(4) == [1, 2, 3, 4]
    closer.join(LONG_S)


def test_a_handler_can_take_itself_off_and_cannot_wait_for_itself(bus: Bus) -> None:
    seen = Seen()
    refused: list[BaseException] = []

    def handler(event: Event) -> None:
        for wait_for_itself in (bus.close, bus.idle):
            try:
                wait_for_itself()
            except UsageError as error:
                refused.append(error)
        subscription.unsubscribe()
        seen(event)

    subscription = bus.subscribe("orders.created", handler, group="readers")
    bus.publish_many("orders.created", [1, 2])
    wait_until(lambda: not subscription.is_active)
    assert (seen.payloads, len(refused)) == ([1], 2)
    assert bus.group("readers").progress().tally == Tally(processed=1)
    assert bus.counters()["orders.created"]["disabled_by_hand"] == 1
    bus.unsubscribe(subscription.id)


def test_a_worker_whose_lease_is_gone_reports_nothing_and_the_event_comes_again(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes to the same worker, under another lease, while the first call is at work still."""
    gate = Gate()

    def handler(event: Event) -> None:
        is_first = not gate.seen.payloads
        gate(event)
        if is_first:
            raise ValueError("of no interest any more")

    bus.subscribe("orders.created", handler, group="readers", lease=LONG_S, max_inflight=2)
    bus.publish("orders.created", 1)
    gate.seen.wait(1)
    group = bus.group("readers")
    (held,) = bus._store.open_deliveries("readers")
    group.hand_back(held)
    wait_until(lambda: bus._store.delivery(held.id).token == held.token + 1)
    with caplog.at_level(logging.WARNING, "dagster_bus"):
        gate.may_go_on.set()
        assert gate.seen.wait(2) == [1, 1]
        assert bus.idle(LONG_S)
    assert any("lease" in record.getMessage() for record in caplog.records)
    assert group.progress().tally == Tally(processed=1)
    assert len(gate.seen.payloads) == 2
    with pytest.raises(LeaseLost):
        group.renew(held)


def test_the_lease_of_a_slow_handler_is_kept(bus: Bus) -> None:
    gate, other = Gate(), Seen()
    bus.subscribe("orders.created", gate, group="readers", lease=0.4)
    bus.publish("orders.created", 1)
    gate.seen.wait(1)
    bus.subscribe("orders.created", other, group="readers", lease=0.4)
    assert not bus.idle(1.0)
    gate.may_go_on.set()
    assert bus.idle(LONG_S)
    assert (gate.seen.payloads, other.payloads) == ([1], [])


def let_workers_die(bus: Bus, order: Order) -> None:
    """Take three events as often as they may be tried, and vanish each time."""
    bus.publish_many("orders.created", range(3))
    retry = RetryPolicy(base_delay_ms=0, max_delay_ms=0)
    config = GroupConfig("readers", ("orders.created",), order=order, retry=retry)
    group = Group(config, bus._store, bus._clock)
    for _ in range(retry.max_attempts):
        (reserved,) = group.reserve(lambda _: WorkerState.GONE, most=1)
        group.lease(reserved.id, reservation=reserved.reservation, worker="gone")
    group.reserve(lambda _: WorkerState.GONE, most=0)


def test_events_that_workers_die_over_are_tried_one_by_one(bus: Bus) -> None:
    let_workers_die(bus, Order.NONE)
    retry = RetryPolicy(max_delay_ms=0)
    config = GroupConfig("readers", ("orders.created",), retry=retry)
    alone = Group(config, bus._store, bus._clock)
    (reserved,) = alone.reserve()
    held = alone.lease(reserved.id, reservation=reserved.reservation, worker="gone")
    report = set_apart(held, [*alone.events(held)], Order.NONE)
    assert report is not None
    alone.report(held, report)
    alone.reserve(lambda _: WorkerState.GONE, most=0)  # and it died over the first one alone
    seen = Seen()
    bus.subscribe("orders.created", seen, group="readers", retry={"max_delay_ms": 0})
    assert sorted(seen.wait(2)) == [1, 2]
    wait_until(lambda: bus.idle(LONG_S) and bus.group("readers").progress().lag == 0)
    assert sorted(seen.payloads) == [1, 2]
    (letter,) = bus.dead_letters("readers").list()
    assert letter.event.payload == 0
    assert {error.type for error in letter.errors} == {"WorkerGone"}


def test_where_order_counts_the_first_event_that_workers_die_over_is_given_up(bus: Bus) -> None:
    let_workers_die(bus, Order.PARTITION)
    seen = Seen()
    bus.subscribe("orders.created", seen, group="readers", order="partition")
    assert seen.wait(2) == [1, 2]
    assert bus.idle(LONG_S)
    assert payloads_of_letters(bus, "readers") == [0]


@pytest.mark.parametrize("order", Order)
def test_a_group_that_is_to_block_stops_when_workers_die_over_its_events(
    open_bus: OpenBus, order: Order
) -> None:
    block = OnExhausted.BLOCK
    bus = open_bus(GroupConfig("readers", ("orders.created",), order=order, on_exhausted=block))
    let_workers_die(bus, order)
    seen = Seen()
    bus.subscribe("orders.created", seen, group="readers")
    group = bus.group("readers")
    wait_until(lambda: group.progress().blocked == 3)
    assert (seen.payloads, bus.dead_letters("readers").list()) == ([], [])
    assert group.resume() == 1
    assert sorted(seen.wait(3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("pattern", "wishes", "complaint"),
    [
        ("nowhere", {}, "not declared"),
        ("Bad Pattern", {}, "not a topic pattern"),
        ("orders.*", {"timeout": 0}, "needs some time"),
        ("orders.*", {"max_inflight": 0}, "at least 1"),
        ("orders.*", {"retry": {"max_attempts": 2}}, "need a group"),
        ("orders.*", {"group": "g", "retry": {"attempts": 2}}, "no part attempts"),
        ("orders.*", {"group": "g", "order": "random"}, "no order of events"),
        ("orders.*", {"nonsense": 2}, "no option nonsense"),
        ("orders.created", {"group": "both"}, "also reads orders.paid"),
        ("orders.*", {"group": "both", "order": "key"}, "declared with order none"),
        ("bus.**", {"group": "g"}, "kept nowhere"),
    ],
)
def test_what_cannot_be_is_refused(
    open_bus: OpenBus, pattern: str, wishes: dict[str, Any], complaint: str
) -> None:
    bus = open_bus(GroupConfig("both", ("orders.created", "orders.paid")))
    with pytest.raises(UsageError, match=complaint):
        bus.subscribe(pattern, Seen(), **wishes)
    assert bus.subscriptions == ()


def test_all_of_a_group_read_the_same(bus: Bus) -> None:
    bus.subscribe("orders.created", Seen(), group="readers")
    with pytest.raises(UsageError, match=r"read orders\.created with order none"):
        bus.subscribe("orders.paid", Seen(), group="readers")
    with pytest.raises(UnknownTopic):
        bus.subscribe("orders.lost", Seen(), group="readers")


def test_a_decorator_subscribes_and_leaves_the_function_as_it_is(bus: Bus) -> None:
    seen = Seen()

    @bus.on("orders.created", group="readers")
    def handler(event: Event) -> str:
        seen(event)
        return "done"

    bus.publish("orders.created", 1)
    assert bus.idle(LONG_S)
    (event,) = bus.read("orders.created")
    assert handler(event) == "done"
    assert seen.payloads == [1, 1]


def test_a_task_is_called_by_a_worker_and_tried_again(bus: Bus) -> None:
    queue = TaskQueue(bus, "orders.created")
    calls: list[Any] = []

    @queue.task
    def add(one: int, *, more: int) -> None:
        calls.append(one + more)
        if len(calls) == 1:
            raise ConnectionError("not yet")

    @queue.task(name="later")
    async def wait(text: str) -> None:
        await asyncio.sleep(0)
        calls.append(text)

    queue.enqueue("add", 1, more=2)
    queue.enqueue("later", "done")
    queue.work(group="workers", retry=QUICK)
    wait_until(lambda: bus.idle(LONG_S) and len(calls) == 3)
    assert sorted(map(str, calls)) == ["3", "3", "done"]
    wait_until(lambda: bus.group("workers").progress().tally == Tally(processed=2))


def test_a_task_that_nobody_knows_or_that_always_fails_is_a_dead_letter(bus: Bus) -> None:
    queue = TaskQueue(bus, "orders.created")
    queue.task(lambda: None, name="fine")
    queue.enqueue("missing")
    bus.publish("orders.created", "no call")
    queue.enqueue("fine", "one argument too many")
    queue.work(retry={"max_attempts": 1})
    assert bus.idle(LONG_S)
    letters = bus.dead_letters("workers").list()
    assert sorted(letter.errors[-1].type for letter in letters) == [
        "TypeError",
        "UnknownTask",
        "UnknownTask",
    ]
    with pytest.raises(UsageError, match="two tasks of this queue are called 'fine'"):
        queue.task(lambda: None, name="fine")
