"""The shop of the demo is lifelike, and the same for the same seed."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from dagster_bus.schemas.schema import PayloadSchema, compile_schema
from dagster_bus.spec.load import load_spec
from definitions.accounts import FATES, expected
from definitions.demo import DAY_BEATS, ORDERS_A_BEAT, SEED
from definitions.shop import CARRIERS, CURRENCIES, LATE, NO_CURRENCY, Happening, Kind, Shop
from definitions.stage import TOPICS

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
BEAT = timedelta(minutes=5)
GARBLED = {Kind.NO_OBJECT, Kind.WRONG_TYPE, Kind.GARBLED_SHIPMENT}


def day_of(seed: int) -> list[Happening]:
    shop = Shop(seed, NOON, BEAT)
    day = [each for _ in range(DAY_BEATS) for each in shop.pass_time(ORDERS_A_BEAT)]
    return [*day, *shop.close(), *shop.poison(3)]


@pytest.fixture(scope="module")
def day() -> list[Happening]:
    return day_of(SEED)


@pytest.fixture(scope="module")
def schemas() -> dict[str, PayloadSchema]:
    declared = load_spec(TOPICS, {}).schemas
    return {topic: compile_schema(schema) for topic, schema in declared.items()}


def test_a_seed_gives_the_same_day_again_and_another_one_a_different_day(
    day: list[Happening],
) -> None:
    assert day_of(SEED) == day
    assert day_of(SEED + 1) != day


def test_every_kind_of_event_is_there_and_most_go_well(day: list[Happening]) -> None:
    kinds = Counter(each.kind for each in day)
    assert set(kinds) == set(Kind)
    orders = DAY_BEATS * ORDERS_A_BEAT
    assert kinds[Kind.ORDER] + kinds[Kind.PHONE_ORDER] == orders
    assert 0.07 < kinds[Kind.PHONE_ORDER] / orders < 0.13
    assert 0.8 * orders < kinds[Kind.PAYMENT] < orders
    assert 0.01 < 1 - kinds[Kind.PAYMENT] / paid(kinds) < 0.06
    assert kinds[Kind.POISON] == 3


def paid(kinds: Counter[Kind]) -> int:
    return sum(kinds[kind] for kind in FATES["payments"])


def test_every_kind_has_a_fate_in_a_group_of_the_file() -> None:
    assert set(FATES) == set(load_spec(TOPICS, {}).spec.groups)
    assert {kind for fates in FATES.values() for kind in fates} == set(Kind)


def test_what_is_due_adds_up_to_what_is_published(day: list[Happening]) -> None:
    loaded = load_spec(TOPICS, {})
    topics = Counter(each.topic for each in day)
    topics["payments.booked"] = sum(each.kind is Kind.PAYMENT for each in day)
    for group, tally in expected(Counter(each.kind for each in day)).items():
        assert tally.settled == sum(topics[topic] for topic in loaded.topics_of(group))


def test_payloads_fit_their_topics_unless_they_are_garbled(
    day: list[Happening], schemas: dict[str, PayloadSchema]
) -> None:
    for kind, topic, message in day:
        problem = schemas[topic].problem(message.payload, 1)
        assert (problem is not None) == (kind in GARBLED), (kind, problem)


def test_a_misprinted_order_fits_no_strict_topic(schemas: dict[str, PayloadSchema]) -> None:
    assert "amount" in str(schemas["orders.created"].problem(Shop(SEED).misprint(), 1))


def test_an_order_is_paid_after_it_was_placed_and_sent_after_it_was_paid(
    day: list[Happening],
) -> None:
    times = {
        kind: {
            each.message.payload["order_id"]: each.message.payload[name]
            for each in day
            if each.kind is kind
        }
        for kind, name in {Kind.PAYMENT: "paid_at", Kind.SHIPMENT: "sent_at"}.items()
    }
    placed = {
        each.message.payload["order_id"]: each.message.payload["placed_at"]
        for each in day
        if each.kind in (Kind.ORDER, Kind.PHONE_ORDER)
    }
    assert all(placed[order] < paid_at for order, paid_at in times[Kind.PAYMENT].items())
    assert all(
        times[Kind.PAYMENT][order] < sent_at for order, sent_at in times[Kind.SHIPMENT].items()
    )
    cancelled = {e.message.payload["order_id"] for e in day if e.kind is Kind.CANCELLATION}
    assert cancelled
    assert cancelled <= set(placed)
    assert not cancelled & set(times[Kind.PAYMENT])


def test_late_shipments_keep_their_time_and_have_a_partition_of_their_own(
    day: list[Happening],
) -> None:
    late = [each.message for each in day if each.kind is Kind.LATE_SHIPMENT]
    others = {each.message.partition for each in day if each.topic == "shipments.sent"}
    assert {message.partition for message in late} == {CARRIERS.index("snail-freight")}
    assert others == {0, 1, 2}
    times = [message.ts for message in late if message.ts is not None]
    assert times == sorted(times)
    assert len(times) == len(late)
    assert times[-1] <= (NOON + BEAT * 2 * DAY_BEATS - LATE).timestamp() * 1_000


def test_poison_is_in_a_currency_that_has_no_rate(day: list[Happening]) -> None:
    for each in day:
        if each.topic == "orders.created":
            known = each.message.payload["currency"] in CURRENCIES
            assert known == (each.kind is not Kind.POISON)
    assert NO_CURRENCY not in CURRENCIES
