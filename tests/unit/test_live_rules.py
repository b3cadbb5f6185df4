"""The decisions of live workers: pure, and so tested without a store or a thread."""

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace

import pytest

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.ranges import Place
from dagster_bus.core.recovering import Worker
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.core.retry import BreakerPolicy, RetryPolicy
from dagster_bus.core.store import GroupView, PartitionHead, Tally
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicPartition
from dagster_bus.live import on, presence
from dagster_bus.live.counters import Counters
from dagster_bus.live.ledger import Ledger
from dagster_bus.live.options import Options, Wishes, checked, group_config
from dagster_bus.live.pace import LOOK_EVERY_S, flush_at, next_look_s, next_take, until_s
from dagster_bus.live.resting import is_settled
from dagster_bus.live.signals import Signals, is_for_signals
from dagster_bus.live.taking import is_suspicious, set_apart, sift
from tests.unit.test_live_lanes import event, jobs

AT = TopicPartition("orders", 0)
NOW_MS = 1_000_000


def span(first: int, last: int) -> OffsetRange:
    return OffsetRange(*AT, first, last)


def delivery(*ranges: OffsetRange, state: State = State.RUNNING, due_ms: int = NOW_MS) -> Delivery:
    return Delivery(
        id="d",
        group="g",
        window="w",
        ranges=ranges or (span(1, 4),),
        state=state,
        due_ms=due_ms,
        created_ms=NOW_MS,
        token=1,
    )


def died(held: Delivery, *, exhausted: bool = True, version: int = 12) -> Delivery:
    gone = AttemptError(4, "WorkerGone", "gone", "", "worker", NOW_MS)
    return replace(held, exhausted=exhausted, errors=(gone,), version=version)


def view(
    *deliveries: Delivery,
    heads: Iterable[PartitionHead] = (),
    blocked: int = 0,
    breaker: Breaker | None = None,
) -> GroupView:
    return GroupView(
        version=1,
        heads=tuple(heads),
        in_flight=tuple(each for each in deliveries if each.in_flight),
        due=tuple(each for each in deliveries if each.state is State.WAITING),
        tally=Tally(),
        breaker=breaker or Breaker(),
        blocked=blocked,
    )


@pytest.mark.parametrize(
    ("take", "filled", "took_s", "expected"),
    [
        (16, True, 0.01, 32),
        (16, True, 0.5, 16),
        (16, True, 3.0, 8),
        (16, False, 0.0, 16),
        (900, True, 0.01, 1_000),
        (4, True, 3.0, 3),
    ],
)
def test_a_worker_takes_about_as_much_as_it_does_in_half_a_second(
    take: int, filled: bool, took_s: float, expected: int
) -> None:
    assert next_take(take, filled=filled, took_s=took_s, least=3, most=1_000) == expected


def test_outcomes_are_reported_when_it_is_quiet_and_not_much_later_if_never() -> None:
    assert flush_at(10.0, 10.0) == pytest.approx(10.005)
    assert flush_at(10.0, 10.099) == pytest.approx(10.1)


def test_a_worker_sleeps_until_the_next_wait_or_lease_is_over() -> None:
    waiting = delivery(state=State.WAITING, due_ms=NOW_MS + 200)
    leased = replace(delivery(due_ms=NOW_MS + 50), id="mine")
    assert next_look_s(view(), NOW_MS, ()) == LOOK_EVERY_S
    assert next_look_s(view(waiting, leased), NOW_MS, ["mine"]) == pytest.approx(0.2)
    assert next_look_s(view(waiting, leased), NOW_MS, []) == pytest.approx(0.05)
    assert next_look_s(view(waiting), NOW_MS + 5_000, ()) == LOOK_EVERY_S


def test_what_has_been_due_for_long_and_was_not_taken_wakes_nobody() -> None:
    assert until_s([NOW_MS - 1_000], NOW_MS) == LOOK_EVERY_S
    assert until_s([NOW_MS - 1_000, NOW_MS + 100], NOW_MS) == pytest.approx(0.1)
    assert until_s([NOW_MS - 1], NOW_MS) == 0.001


def test_a_ledger_reports_each_event_once_and_knows_when_all_are_told() -> None:
    held = delivery(span(1, 6))
    ledger = Ledger(held)
    one, two, three, four, *_ = jobs(*"abcdef")
    assert not ledger.has_news
    ledger.processed(one, 1.0)
    ledger.left_out([Place(*AT, 5)], [Place(*AT, 6)], 1.0)
    bad = ValueError("bad")
    ledger.failed(two, bad, [three], 1.0)
    assert not ledger.is_complete
    assert (ledger.is_due(1.001), ledger.is_due(1.01)) == (False, True)
    ledger.returned([four], 1.0)
    assert ledger.is_complete
    assert ledger.is_due(1.0)
    report = ledger.report()
    assert report == Report(
        processed=(span(1, 1),),
        filtered=(span(5, 5),),
        expired=(span(6, 6),),
        failed=(Failed((span(2, 2),), bad, (span(3, 3),)),),
        returned=(span(4, 4),),
    )
    assert ledger.report() == report, "it may have to be said again"
    ledger.reported(replace(held, ranges=()))
    assert ledger.report() == Report()


def test_events_that_fail_with_the_same_words_share_a_fate() -> None:
    ledger = Ledger(delivery(span(1, 4)))
    for job, words in zip(jobs(*"abcd"), ("down", "down", "bad", "down"), strict=True):
        ledger.failed(job, OSError(words), [], 1.0)
    assert [each.ranges for each in ledger.report().failed] == [
        (span(1, 2), span(4, 4)),
        (span(3, 3),),
    ]


def test_events_are_sifted_and_gaps_are_not_waited_for() -> None:
    web = event(1)._replace(attributes_json='{"channel": "web"}')
    old = event(2)._replace(attributes_json='{"channel": "web"}', ttl_s=1, ts=NOW_MS - 1_000)
    sifted = sift(
        delivery(span(1, 5)), [web, old, event(4)], [EventFilter({"channel": "web"})], NOW_MS
    )
    assert sifted.wanted == [web]
    assert sifted.expired == [Place(*AT, 2)]
    assert sorted(sifted.filtered) == [Place(*AT, 3), Place(*AT, 4), Place(*AT, 5)]


def test_what_workers_died_over_is_set_apart() -> None:
    held = died(delivery(span(1, 3)))
    events = [event(1, "a"), event(2, "b"), event(3, "a")]
    assert is_suspicious(held)
    assert not is_suspicious(died(held, exhausted=False))
    assert set_apart(held, events, Order.NONE) == Report(returned=(span(2, 3),))
    (refused,) = (set_apart(held, events, Order.KEY) or Report()).refused
    assert (refused.ranges, refused.behind) == ((span(1, 1),), (span(3, 3),))
    (refused,) = (set_apart(held, events, Order.PARTITION) or Report()).refused
    assert refused.behind == (span(2, 3),)


def test_one_event_is_given_up_only_if_a_worker_died_over_it_alone() -> None:
    alone = died(delivery(span(1, 1)))
    assert set_apart(alone, [event(1)], Order.NONE) is None
    assert set_apart(replace(alone, version=2), [event(1)], Order.NONE) == Report()


@pytest.mark.parametrize(
    ("found", "settled"),
    [
        (view(heads=[PartitionHead(AT, 5, 5, None)]), True),
        (view(heads=[PartitionHead(AT, 4, 5, NOW_MS)]), False),
        (view(heads=[PartitionHead(AT, 5, 9, NOW_MS)]), True),
        (view(delivery(span(4, 4))), False),
        (view(delivery(span(5, 6))), True),
        (view(delivery(state=State.WAITING)), False),
        (view(heads=[PartitionHead(AT, 4, 5, NOW_MS)], blocked=1), True),
        (view(heads=[PartitionHead(AT, 4, 5, NOW_MS, is_held=True)]), False),
    ],
)
def test_a_group_is_settled_when_nothing_that_was_there_is_left_to_do(
    found: GroupView, settled: bool
) -> None:
    config = GroupConfig("g", ("orders",))
    assert is_settled(found, {AT: 5}, config, NOW_MS) is settled


def test_what_waits_behind_another_attempt_or_for_the_breaker_is_not_waited_for() -> None:
    ordered = GroupConfig("g", ("orders",), order=Order.PARTITION)
    held = view(heads=[PartitionHead(AT, 4, 5, NOW_MS, is_held=True)])
    assert is_settled(held, {AT: 5}, ordered, NOW_MS)
    paused = GroupConfig("g", ("orders",), retry=RetryPolicy(breaker=BreakerPolicy(1)))
    new = view(heads=[PartitionHead(AT, 4, 5, NOW_MS)], breaker=Breaker(1, NOW_MS + 1))
    assert is_settled(new, {AT: 5}, paused, NOW_MS)
    assert not is_settled(new, {AT: 5}, paused, NOW_MS + 1)


def test_a_group_that_is_not_declared_has_the_usual_retries() -> None:
    config = group_config(checked({"group": "g", "queue_capacity": 50}), ("orders",), None)
    assert (config.name, config.topics, config.max_events) == ("g", ("orders",), 50)
    assert config.retry == RetryPolicy(4, 1_000, 2.0, 30_000, "none")


def test_a_subscription_changes_parts_of_a_declared_group() -> None:
    declared = GroupConfig("g", ("orders",), retry=RetryPolicy(9, jitter="full"), start="latest")
    wishes: Wishes = {"group": "g", "retry": {"base_delay_ms": 5}, "lease": 0.5}
    config = group_config(checked(wishes), ("orders", "stock"), declared)
    assert config.topics == ("orders",)
    assert config.retry == RetryPolicy(9, 5, jitter="full")
    assert (config.start, config.lease_ms, config.launch_timeout_ms) == ("latest", 500, 500)
    policy = RetryPolicy(1)
    assert group_config(Options(group="g", retry=policy), ("orders",), declared).retry == policy


def test_a_mapping_is_a_filter_for_attributes() -> None:
    assert checked({"filter": {"tier": 1}}).filter == EventFilter({"tier": 1})
    assert checked({"filter": EventFilter(keys=("k",))}).filter == EventFilter(keys=("k",))


def test_a_worker_of_this_process_is_there_and_one_that_ended_is_not() -> None:
    name = presence.worker_name("s")
    assert not presence.is_gone(name)
    code = "from dagster_bus.live import presence; print(presence.worker_name('s'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert presence.is_gone(ended.stdout.strip())
    assert presence.look(replace(delivery(), worker=ended.stdout.strip())) is Worker.GONE
    assert presence.look(replace(delivery(), worker=name)) is Worker.UNKNOWN


def test_a_process_that_ended_unnoticed_is_gone_too() -> None:
    zombie = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert zombie.stdout is not None
    kind, home, _, _, _ = presence.worker_name("s").split(":")
    name = ":".join((kind, home, str(zombie.pid), "another", "s"))
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert presence.is_gone(name)
    zombie.communicate()
    assert presence.is_gone(name)


@pytest.mark.parametrize("place", [1, 3])
def test_nothing_is_said_of_workers_elsewhere_or_of_another_kind(place: int) -> None:
    parts = presence.worker_name("s").split(":")
    parts[2] = "999999999"
    parts[place] = "other"
    assert presence.is_gone(":".join(parts)) is (place == 3)
    for name in (None, "", "a-dagster-run", "live:x:y"):
        assert not presence.is_gone(name)


def test_an_earlier_process_of_the_same_number_is_gone() -> None:
    parts = presence.worker_name("s").split(":")
    parts[3] = "earlier"
    assert presence.is_gone(":".join(parts))


def test_signals_go_to_those_who_ask_for_them() -> None:
    signals = Signals(lambda: NOW_MS)
    heard: list[object] = []
    signals.add("a", "bus.**", lambda said: heard.append(said.payload))
    signals.add("b", "bus.handler.*", lambda said: heard.append(said.topic))
    signals.send("bus.subscriber.disabled", {"n": 1})
    signals.remove("a")
    signals.send("bus.handler.error", {"n": 2})
    assert heard == [{"n": 1}, "bus.handler.error"]
    assert is_for_signals("bus.**")
    assert not is_for_signals("**")
    assert not is_for_signals("business.orders")


def test_counters_are_kept_by_topic() -> None:
    counters = Counters()
    counters.add("delivered", "orders", 2)
    counters.add_each("in_flight", ["orders", "orders", "stock"])
    counters.add("in_flight", "orders", -1)
    found = counters.snapshot()
    assert found["orders"]["delivered"] == 2
    assert (found["orders"]["in_flight"], found["stock"]["in_flight"]) == (1, 1)


def test_a_marked_handler_is_a_function_as_before() -> None:
    @on("orders", group="a")
    @on("stock")
    def handler(_: object) -> str:
        return "called"

    assert handler(None) == "called"
