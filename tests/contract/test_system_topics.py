"""What the bus tells of itself on topics of its own, on every store, and never in circles."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dagster_bus.core.delivery import settle
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import Change, Tally
from dagster_bus.core.system import AUDIT, DEAD_LETTERS, METRICS
from dagster_bus.core.topic import SchemaConfig, SchemaVersion, TopicConfig
from dagster_bus.errors import InvalidTopicName, SchemaMismatch, StaleState
from dagster_bus.opening import Bus
from dagster_bus.schemas import compile_schema
from dagster_bus.stores import open_store
from tests.support.builders import group_config

LONG_S = 60.0
STRICT = SchemaConfig({1: SchemaVersion("fields", {"n": "bigint"})}, 1, strict=True)
ORDERS = TopicConfig("orders", schema=STRICT)
READERS = group_config(retry=RetryPolicy(max_attempts=2, base_delay_ms=0, jitter="none"))

OpenBus = Callable[..., Bus]


@pytest.fixture
def open_bus(store_url: str) -> Iterator[OpenBus]:
    opened: list[Bus] = []

    def bus(*system: str, groups: tuple[GroupConfig, ...] = (READERS,), **more: Any) -> Bus:
        topics = [ORDERS, *map(TopicConfig, system)]
        store = open_store(store_url)
        store.declare(topics)
        opened.append(Bus(store, topics, groups, compile_schema=compile_schema, **more))
        return opened[-1]

    yield bus
    for each in opened:
        each.close(0)


def told(bus: Bus, topic: str) -> list[Any]:
    return [event.payload for event in bus.read(topic)]


def actions(bus: Bus) -> list[str]:
    return [each["action"] for each in told(bus, AUDIT)]


def test_publishing_failing_acknowledging_and_giving_up_are_audited(open_bus: OpenBus) -> None:
    bus = open_bus(AUDIT)
    first, last = bus.publish_many("orders", [{"n": 1}, {"n": 2}])
    group = bus.group("readers")
    (held,) = group.take("run-1")
    group.fail(held, ValueError("bad luck"))
    (held,) = group.take("run-2")
    group.settle(held)
    bus.publish("orders", {"n": 3})
    for run in ("run-3", "run-4"):
        (held,) = group.take(run)
        group.fail(held, ValueError("again"))

    publish, redelivery, ack, *_, dead = told(bus, AUDIT)
    assert actions(bus) == ["publish", "redelivery", "ack", "publish", "redelivery", "dead-letter"]
    assert publish == {
        "action": "publish",
        "topic": "orders",
        "events": 2,
        "first_id": first.id,
        "last_id": last.id,
        "sources": [],
    }
    assert redelivery["group"] == "readers"
    assert redelivery["ranges"] == ["orders/0:1-2"]
    assert redelivery["error"] == "ValueError: bad luck"
    assert (ack["processed"], ack["filtered"], ack["expired"]) == (2, 0, 0)
    assert (dead["delivery"], dead["failed_attempts"]) == (held.id, 2)


def test_sending_back_letters_and_moving_a_group_are_audited(open_bus: OpenBus) -> None:
    bus = open_bus(AUDIT, groups=(group_config(retry=RetryPolicy(max_attempts=1)),))
    bus.publish("orders", {"n": 1})
    group = bus.group("readers")
    (held,) = group.take("run")
    group.fail(held, ValueError("bad luck"))
    (letter,) = bus.dead_letters("readers").list()
    assert [*bus.dead_letters("readers").redrive()]
    group.seek("earliest", force=True)
    (redrive,) = (each for each in told(bus, AUDIT) if each["action"] == "redrive")
    assert redrive["letters"] == [letter.id]
    (move,) = (each for each in told(bus, AUDIT) if each["action"] == "move")
    assert move["to"] == [{"topic": "orders", "partition": 0, "offset": 1}]


def test_what_is_refused_is_not_audited(open_bus: OpenBus) -> None:
    bus = open_bus(AUDIT)
    with pytest.raises(SchemaMismatch):
        bus.publish("orders", {"n": "many"})
    bus.publish("orders", {"n": 1})
    (held,) = bus.group("readers").take("run")
    later = settle(held, token=held.token, now_ms=held.due_ms - 1)
    stale = Change(group="readers", deliveries=(later, later), done=Tally(processed=1))
    with pytest.raises(StaleState):
        bus._store.commit(stale)
    assert actions(bus) == ["publish"]


def test_whoever_opens_the_bus_by_its_address_is_audited_too(
    open_bus: OpenBus, store_url: str
) -> None:
    bus = open_bus(AUDIT)
    with Bus.open(store_url) as other:
        other.publish("orders", {"n": 1}, source="elsewhere")
    assert [each["sources"] for each in told(bus, AUDIT)] == [["elsewhere"]]


def test_a_group_that_reads_the_audit_adds_nothing_to_it(open_bus: OpenBus) -> None:
    bus = open_bus(AUDIT, groups=(group_config(name="auditors", topics=(AUDIT,)),))
    bus.publish("orders", {"n": 1})
    auditors = bus.group("auditors")
    (held,) = auditors.take("run")
    auditors.fail(held, ValueError("bad luck"))
    assert actions(bus) == ["publish"]
    auditors.seek("earliest", force=True)
    (held,) = auditors.take("run")
    auditors.settle(held)
    assert actions(bus) == ["publish"]


def test_a_subscriber_of_the_audit_adds_nothing_to_it(open_bus: OpenBus) -> None:
    bus = open_bus(AUDIT, groups=())
    heard: list[Any] = []
    bus.subscribe(AUDIT, lambda event: heard.append(event.payload["action"]), group="auditors")
    bus.publish("orders", {"n": 1})
    assert bus.idle(LONG_S)
    assert heard == actions(bus) == ["publish"]


def test_an_error_that_is_no_text_is_audited_all_the_same(open_bus: OpenBus) -> None:
    bus = open_bus(AUDIT)
    bus.publish("orders", {"n": 1})
    (held,) = bus.group("readers").take("run")
    bus.group("readers").fail(held, ValueError("no file \udcff"))
    assert told(bus, AUDIT)[-1]["error"] == "ValueError: no file ?"


def test_letters_of_all_groups_are_mirrored_to_one_topic_but_for_those_of_its_own(
    open_bus: OpenBus,
) -> None:
    once = RetryPolicy(max_attempts=1)
    undertakers = group_config(name="undertakers", topics=(DEAD_LETTERS,), retry=once)
    bus = open_bus(DEAD_LETTERS, groups=(group_config(retry=once), undertakers))
    bus.publish("orders", {"n": 1})
    for name in ("readers", "undertakers"):
        (held,) = bus.group(name).take("run")
        bus.group(name).fail(held, ValueError("bad luck"))
    (mirrored,) = bus.read(DEAD_LETTERS)
    assert mirrored.payload == {"n": 1}
    assert mirrored.attributes["dlq.topic"] == "orders"
    assert mirrored.attributes["dlq.group"] == "readers"
    assert len(bus.dead_letters("undertakers").list()) == 1


def test_letters_of_a_subscriber_are_mirrored(open_bus: OpenBus) -> None:
    bus = open_bus(DEAD_LETTERS, groups=())

    def fail(_: object) -> None:
        raise ValueError("bad luck")

    bus.subscribe("orders", fail, group="mailer", retry={"max_attempts": 1})
    bus.publish("orders", {"n": 1})
    assert bus.idle(LONG_S)
    (mirrored,) = bus.read(DEAD_LETTERS)
    assert mirrored.attributes["dlq.group"] == "mailer"


def test_counters_and_lag_are_told_at_the_end_at_the_latest(
    open_bus: OpenBus, store_url: str
) -> None:
    bus = open_bus(METRICS, groups=(), metrics_every_s=LONG_S)
    bus.subscribe("orders", lambda _: None, group="mailer")
    bus.publish_many("orders", [{"n": 1}, {"n": 2}])
    assert bus.idle(LONG_S)
    bus.close()
    with Bus.open(store_url) as other:
        (numbers,) = told(other, METRICS)
    assert numbers["counters"]["orders"]["published"] == 2
    assert numbers["counters"]["orders"]["delivered"] == 2
    assert numbers["counters"]["orders"]["acked"] == 2
    assert numbers["gauges"] == {"in_flight": {"orders": 0}, "lag": {"mailer": 0}}
    assert list(numbers["counters"]) == ["orders"]


def test_counters_are_told_again_and_again(open_bus: OpenBus) -> None:
    bus = open_bus(METRICS, groups=(), metrics_every_s=0.01)
    bus.subscribe("orders", lambda _: None, group="mailer")
    following = bus.tail(METRICS, follow=True)
    assert len([next(following) for _ in range(3)]) == 3


def test_only_a_pattern_that_says_so_selects_what_the_bus_tells(open_bus: OpenBus) -> None:
    bus = open_bus(AUDIT, DEAD_LETTERS)
    assert bus.select("**") == bus.select("*") == bus.select() == ["orders"]
    assert bus.select("system.**") == [AUDIT, DEAD_LETTERS]
    assert bus.select("system.bus.*") == [AUDIT, DEAD_LETTERS]


@pytest.mark.parametrize("topic", [AUDIT, METRICS])
def test_nobody_else_publishes_where_the_bus_tells_of_itself(open_bus: OpenBus, topic: str) -> None:
    bus = open_bus(AUDIT)
    with pytest.raises(InvalidTopicName, match="belong to the bus"):
        bus.publish(topic, {"action": "publish"})
    assert told(bus, AUDIT) == []


def test_a_refused_payload_is_counted_and_signalled(open_bus: OpenBus) -> None:
    bus = open_bus()
    rejected: list[Any] = []
    bus.subscribe("bus.message.rejected", lambda event: rejected.append(event.payload))
    with pytest.raises(SchemaMismatch) as refused:
        bus.publish("orders", {"n": "many"})
    with pytest.raises(SchemaMismatch):
        bus.publish("orders", {"n": 1}, schema_version=7)
    assert bus.idle(LONG_S)
    assert rejected[0] == {"topic": "orders", "reason": str(refused.value)}
    assert "7" in rejected[1]["reason"]
    counted = bus.counters()["orders"]
    assert (counted["published"], counted["schema_rejected"]) == (0, 2)


def test_a_repeated_event_is_not_counted_as_published(open_bus: OpenBus) -> None:
    bus = open_bus()
    for _ in range(2):
        bus.publish("orders", {"n": 1}, idempotency_key="once")
    assert bus.counters()["orders"]["published"] == 1
