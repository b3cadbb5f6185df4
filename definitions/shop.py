"""A web shop that publishes lifelike events; with a seed, the same ones each time.

An order is paid some time after it was placed, and sent some time after that; a few are taken back.
Not all goes well: a bank reports some payments garbled, a warehouse some parcels, and one of the
carriers reports a day late.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from dagster_bus import Message

CURRENCIES = {"EUR": 70, "USD": 15, "GBP": 10, "CHF": 5}
NO_CURRENCY = "XAU"
METHODS = {"card": 60, "transfer": 25, "wallet": 15}
REASONS = ("changed my mind", "too slow", "found it cheaper", "wrong size")
CARRIERS = ("swift-parcel", "city-bike", "snail-freight")
"""Each has a partition of its own, so that one that reports late keeps its own time."""

LATE = timedelta(hours=26)
"""How far behind the last carrier is with its reports."""

PHONE_SHARE = 0.1
CANCELLED_SHARE = 0.06
FORGOTTEN_SHARE = 0.04
GARBLED_SHARE = 0.03
LONGEST_WAIT = 13
"""Beats until an order is paid, or until what is paid is sent."""

LATE_EVERY = 15
"""Beats between two of its reports, each of several parcels."""

FIRST_NUMBER = 1_001
"""Lower ones are orders of the days before."""


class Kind(StrEnum):
    """What an event is, as far as that decides what becomes of it."""

    ORDER = "order"
    PHONE_ORDER = "order by phone"
    POISON = "order in a currency without a rate"
    CANCELLATION = "cancellation"
    PHONE_CANCELLATION = "cancellation of an order by phone"
    PAYMENT = "payment"
    NO_OBJECT = "payment as a line of text"
    WRONG_TYPE = "payment with words for its amount"
    MISSING_FIELD = "payment that names no order"
    NOTHING_PAID = "payment of nothing"
    SHIPMENT = "shipment"
    LATE_SHIPMENT = "shipment that is reported late"
    GARBLED_SHIPMENT = "shipment as a line of text"


class Happening(NamedTuple):
    """An event that the shop publishes."""

    kind: Kind
    topic: str
    message: Message


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    customer: str
    channel: str
    amount: str
    currency: str


Step = Callable[[Order], Happening]


class Shop:
    """Customers, a bank and carriers, for as long as time is told to pass."""

    def __init__(
        self,
        seed: int | None = None,
        opened: datetime | None = None,
        beat: timedelta = timedelta(seconds=2),
    ) -> None:
        self._dice = random.Random(seed)
        self._now = opened or datetime.now(UTC) - beat
        self._beat = beat
        self._beats = 0
        self._due: defaultdict[int, list[tuple[Step, Order]]] = defaultdict(list)
        self._name = f"{self._dice.randrange(36**4):07}"
        self._number = FIRST_NUMBER
        self._old_number = 0

    def pass_time(self, orders: int) -> list[Happening]:
        """What happens within a beat: so many new orders, and what is due for older ones."""
        self._beats += 1
        self._now += self._beat
        happened = self.orders(orders)
        happened += [step(order) for step, order in self._due.pop(self._beats, ())]
        if self._beats % LATE_EVERY == 0:
            happened += [self._sent_late() for _ in range(self._dice.randint(5, 10))]
        return happened

    def close(self) -> list[Happening]:
        """What happens until all is done that the orders so far bring with them."""
        return [each for _ in range(2 * LONGEST_WAIT) for each in self.pass_time(0)]

    def orders(self, count: int) -> list[Happening]:
        """Customers order, mostly on the web. What follows, time brings."""
        return [self._ordered(self._new_order()) for _ in range(count)]

    def poison(self, count: int) -> list[Happening]:
        """Orders that nobody can price, and that fail every batch that they are in."""
        orders = [self._new_order(NO_CURRENCY, "web") for _ in range(count)]
        return [self._placed(Kind.POISON, order) for order in orders]

    def misprint(self) -> dict[str, str]:
        """The payload of an order that its topic refuses."""
        return {**self._order_payload(self._new_order()), "amount": "a lot"}

    def _ordered(self, order: Order) -> Happening:
        fate = self._dice.random()
        if fate < CANCELLED_SHARE:
            self._later(self._cancelled, order)
        elif fate >= CANCELLED_SHARE + FORGOTTEN_SHARE:
            self._later(self._paid, order)
        return self._placed(Kind.ORDER if order.channel == "web" else Kind.PHONE_ORDER, order)

    def _placed(self, kind: Kind, order: Order) -> Happening:
        return _happening(kind, "orders.created", order, self._order_payload(order))

    def _cancelled(self, order: Order) -> Happening:
        kind = Kind.CANCELLATION if order.channel == "web" else Kind.PHONE_CANCELLATION
        reason = self._dice.choice(REASONS)
        payload = {"order_id": order.id, "customer": order.customer, "reason": reason}
        return _happening(kind, "orders.cancelled", order, payload)

    def _paid(self, order: Order) -> Happening:
        payload: Any = {
            "payment_id": f"P{order.id[1:]}",
            "order_id": order.id,
            "amount": order.amount,
            "currency": order.currency,
            "method": self._one_of(METHODS),
            "paid_at": self._now.isoformat(),
        }
        kind = Kind.PAYMENT
        if self._dice.random() < GARBLED_SHARE:
            kind, payload = self._garbled(order, payload)
        else:
            self._later(self._sent, order)
        return _happening(kind, "payments.received", order, payload)

    def _garbled(self, order: Order, payload: dict[str, Any]) -> tuple[Kind, Any]:
        """A payment as a bank should not report it."""
        kinds = (Kind.NO_OBJECT, Kind.WRONG_TYPE, Kind.MISSING_FIELD, Kind.NOTHING_PAID)
        kind = self._dice.choice(kinds)
        match kind:
            case Kind.NO_OBJECT:
                return kind, f"PAID;{order.id};{order.amount}"
            case Kind.WRONG_TYPE:
                return kind, {**payload, "amount": f"{order.amount} {order.currency}"}
            case Kind.MISSING_FIELD:
                return kind, {name: payload[name] for name in payload if name != "order_id"}
            case _:
                return kind, {**payload, "amount": "0.00"}

    def _sent(self, order: Order) -> Happening:
        carrier = self._dice.choice(CARRIERS[:-1])
        kind, payload = Kind.SHIPMENT, self._shipment(order.id, carrier, self._now)
        if self._dice.random() < GARBLED_SHARE:
            kind, payload = Kind.GARBLED_SHIPMENT, f"SENT;{order.id};{carrier}"
        return Happening(kind, "shipments.sent", _report(payload, carrier))

    def _sent_late(self) -> Happening:
        """An order of the days before, sent a day ago. The event keeps the time that it had in the
        carrier's own log."""
        self._old_number = self._old_number % (FIRST_NUMBER - 1) + 1
        carrier, sent = CARRIERS[-1], self._now - LATE
        payload = self._shipment(self._id(self._old_number), carrier, sent)
        message = _report(payload, carrier)._replace(ts=int(sent.timestamp() * 1_000))
        return Happening(Kind.LATE_SHIPMENT, "shipments.sent", message)

    def _shipment(self, order_id: str, carrier: str, sent: datetime) -> Any:
        return {
            "shipment_id": f"S{order_id[1:]}",
            "order_id": order_id,
            "carrier": carrier,
            "weight_kg": round(self._dice.lognormvariate(0.3, 0.7), 2),
            "sent_at": sent.isoformat(),
        }

    def _later(self, step: Step, order: Order) -> None:
        """Most within few beats, and none of them now."""
        beats = min(1 + int(self._dice.expovariate(1 / 3)), LONGEST_WAIT)
        self._due[self._beats + beats].append((step, order))

    def _new_order(self, currency: str | None = None, channel: str | None = None) -> Order:
        number, self._number = self._number, self._number + 1
        return Order(
            id=self._id(number),
            customer=f"customer-{self._dice.randrange(500):03}",
            channel=channel or ("phone" if self._dice.random() < PHONE_SHARE else "web"),
            amount=f"{self._dice.lognormvariate(3.5, 0.8):.2f}",
            currency=currency or self._one_of(CURRENCIES),
        )

    def _order_payload(self, order: Order) -> dict[str, str]:
        return {
            "order_id": order.id,
            "customer": order.customer,
            "amount": order.amount,
            "currency": order.currency,
            "placed_at": self._now.isoformat(),
        }

    def _id(self, number: int) -> str:
        return f"A-{self._name}-{number:05}"

    def _one_of(self, weights: dict[str, int]) -> str:
        return self._dice.choices(list(weights), list(weights.values()))[0]


def _happening(kind: Kind, topic: str, order: Order, payload: Any) -> Happening:
    attributes = {"channel": order.channel}
    return Happening(kind, topic, Message(payload, order.id, "shop", attributes))


def _report(payload: Any, carrier: str) -> Message:
    return Message(payload, key=carrier, source=carrier, partition=CARRIERS.index(carrier))
