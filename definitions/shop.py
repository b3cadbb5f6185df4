"""A web shop that publishes lifelike events."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from dagster_bus import Message

CURRENCIES = {"EUR": 70, "USD": 15, "GBP": 10, "CHF": 5}
REASONS = ("changed my mind", "too slow", "found it cheaper", "wrong size")
PHONE_SHARE = 0.1


class Shop:
    """Customers who order, mostly on the web, and now and then think better of it."""

    def __init__(self, seed: int | None = None) -> None:
        self._dice = random.Random(seed)
        self._ordered: list[tuple[str, str, str]] = []
        self._number = 0
        self._run = f"{self._dice.randrange(36**4):06}"

    def orders(self, count: int) -> Iterator[Message]:
        for _ in range(count):
            currency = self._dice.choices(list(CURRENCIES), list(CURRENCIES.values()))[0]
            yield self._order(currency)

    def cancellations(self, count: int) -> Iterator[Message]:
        """Some of the orders so far, taken back."""
        for order_id, customer, channel in self._dice.sample(self._ordered, count):
            payload = {
                "order_id": order_id,
                "customer": customer,
                "reason": self._dice.choice(REASONS),
            }
            yield Message(payload, key=order_id, source="shop", attributes={"channel": channel})

    def poison(self, count: int) -> Iterator[Message]:
        """Orders in a currency that the pipeline has no rate for."""
        for _ in range(count):
            yield self._order("XAU", channel="web")

    def _order(self, currency: str, channel: str | None = None) -> Message:
        self._number += 1
        order_id = f"A-{self._run}-{self._number:05}"
        customer = f"customer-{self._dice.randrange(500):03}"
        channel = channel or ("phone" if self._dice.random() < PHONE_SHARE else "web")
        self._ordered.append((order_id, customer, channel))
        ago = timedelta(seconds=self._dice.expovariate(1 / 30))
        payload = {
            "order_id": order_id,
            "customer": customer,
            "amount": f"{self._dice.lognormvariate(3.5, 0.8):.2f}",
            "currency": currency,
            "placed_at": (datetime.now(UTC) - ago).isoformat(),
        }
        return Message(payload, key=order_id, source="shop", attributes={"channel": channel})
