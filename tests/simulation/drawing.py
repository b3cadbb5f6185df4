"""Groups, messages and errors, drawn by dice."""

from random import Random

from dagster_bus.core.delivery import OnExhausted
from dagster_bus.core.event import Message
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.position import AtOffset, AtTime, Start
from dagster_bus.core.retry import BreakerPolicy, Jitter, RetryPolicy
from dagster_bus.core.topic import EventFilter, TopicConfig
from tests.support.builders import START_MS

TOPICS = (
    TopicConfig("orders", 2, retain_ms=60_000),
    TopicConfig("stock", 1, retain_ms=60_000),
)
LEASE_MS = 2_000
LAUNCH_MS = 4_000
KEYS = ("a", "b", "c", "d")
POISON = "poison"
"""An attribute of events that fail whatever is done."""


def draw_group(dice: Random, name: str) -> GroupConfig:
    orders = [Order.NONE, Order.KEY, Order.KEY, Order.PARTITION]
    starts: list[Start] = ["earliest", "earliest", "earliest", "latest"]
    starts += [AtOffset(4), AtTime(START_MS + 2_000)]
    filters = [EventFilter(), EventFilter(), EventFilter({"kind": "x"}), EventFilter(keys=KEYS[:2])]
    return GroupConfig(
        name=name,
        topics=dice.choice([("orders",), ("orders",), ("orders", "stock")]),
        filter=dice.choice(filters),
        start=dice.choice(starts),
        order=dice.choice(orders),
        max_events=dice.choice([1, 3, 7, 20]),
        max_bytes=dice.choice([None, None, 90]),
        max_wait_ms=dice.choice([0, 0, 3_000]),
        max_inflight=dice.choice([1, 2, 4]),
        retry=draw_retry(dice),
        on_exhausted=dice.choice(list(OnExhausted)),
        launch_timeout_ms=LAUNCH_MS,
        lease_ms=LEASE_MS,
        lasting=dice.random() < 0.7,
    )


def draw_retry(dice: Random) -> RetryPolicy:
    jitters: list[Jitter] = ["none", "full", "equal"]
    return RetryPolicy(
        max_attempts=dice.choice([1, 2, 3, 4]),
        base_delay_ms=dice.choice([0, 100, 1_000]),
        max_delay_ms=dice.choice([100, 10_000]),
        jitter=dice.choice(jitters),
        max_age_ms=dice.choice([None, None, None, 20_000]),
        retry_on=dice.choice([(), (), (), ("ValueError", "WorkerGone")]),
        dead_letter_on=dice.choice([(), (), ("LookupError",)]),
        breaker=dice.choice([None, None, BreakerPolicy(2, 5_000)]),
    )


def draw_messages(dice: Random, number: int) -> list[Message]:
    return [draw_message(dice, number + n) for n in range(dice.choice([1, 1, 2, 3, 6]))]


def draw_message(dice: Random, number: int) -> Message:
    attributes: dict[str, str | int | float | bool] = {"kind": dice.choice("xxy")}
    if dice.random() < 0.1:
        attributes[POISON] = True
    return Message(
        {"n": number},
        key=dice.choice([None, *KEYS, *KEYS]),
        attributes=attributes,
        ttl_s=dice.choice([None] * 8 + [1, 10]),
    )


def draw_error(dice: Random) -> Exception:
    return dice.choice([ValueError, ValueError, TimeoutError, KeyError])("it fails")
