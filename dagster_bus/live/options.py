"""What a subscription may ask for, and the group that follows from it. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from dagster_bus.core.event import Attribute, Event
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.position import Start
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.topic import MIB, EventFilter
from dagster_bus.errors import UsageError

MOST_EVENTS = 1_000
MOST_BYTES = 16 * MIB
MOST_DELIVERIES = 10_000
"""A group that is not declared limits each of its workers, and not their number."""

STICKY_MS = 200
"""How long events of a partition wait for the worker that took those before them. Long enough for
one that keeps up; and short, as nobody else does them until then."""

OnError = Callable[[Event, BaseException], object]
OnDisabled = Callable[[str], object]
Retry = RetryPolicy | Mapping[str, Any]


class Wishes(TypedDict, total=False):
    """The options of `subscribe`, by name; each has a default."""

    group: str | None
    """The group to work for. Its events are kept until they are handled, by whichever of its
    workers; without one, the subscriber gets what comes while it is there."""
    filter: EventFilter | Mapping[str, Attribute] | None
    """Which events are wanted; a mapping stands for attributes with these values."""
    timeout: float
    """Seconds that a handler may take."""
    retry: Retry | None
    """A policy, or what is different in it from the group's own."""
    max_inflight: int
    """Events that are handled at the same time."""
    queue_capacity: int
    """Events that are taken from the log ahead of the handler."""
    on_error: OnError | None
    on_disabled: OnDisabled | None
    start: Start | None
    """Where a group that is new begins (earliest), or a subscriber without one (latest)."""
    order: Order | str | None
    """What waits behind an event that failed, in a group that is not declared."""
    lease: float
    """Seconds that this process may be silent before others do its work. A process of this machine
    that has ended is not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Wishes that were checked."""

    group: str | None = None
    filter: EventFilter = field(default_factory=EventFilter)
    timeout_s: float = 30.0
    retry: Retry | None = None
    max_inflight: int = 1
    queue_capacity: int = MOST_EVENTS
    on_error: OnError | None = None
    on_disabled: OnDisabled | None = None
    start: Start | None = None
    order: Order | None = None
    lease_ms: int = 5_000
    once: bool = False


def checked(wishes: Wishes, *, once: bool = False) -> Options:
    """Options that can be granted. Raises UsageError for others."""
    given: dict[str, Any] = {**wishes}
    unknown = set(given) - set(Wishes.__annotations__)
    if unknown:
        raise UsageError(f"subscribe has no option {', '.join(sorted(unknown))}")
    asked = given.pop("filter", None)
    order = given.pop("order", None)
    options = Options(
        filter=asked if isinstance(asked, EventFilter) else EventFilter(asked or {}),
        timeout_s=given.pop("timeout", 30.0),
        order=None if order is None else _order(order),
        lease_ms=int(given.pop("lease", 5.0) * 1_000),
        once=once,
        **given,
    )
    if options.timeout_s <= 0 or options.lease_ms < 100:
        raise UsageError("a handler needs some time: timeout is more than 0, lease at least 0.1 s")
    if options.max_inflight < 1 or options.queue_capacity < 1:
        raise UsageError("max_inflight and queue_capacity are at least 1")
    if options.group is None and (options.retry is not None or options.order is not None):
        raise UsageError("retry and order need a group: without one, an event is handed over once")
    return options


def group_config(
    options: Options, topics: tuple[str, ...], declared: GroupConfig | None
) -> GroupConfig:
    """The group as this subscription works for it: as declared, or made for it."""
    if declared is None:
        base = GroupConfig(
            name=options.group or "",
            topics=topics,
            order=options.order or Order.NONE,
            max_events=MOST_EVENTS,
            max_bytes=MOST_BYTES,
            max_inflight=MOST_DELIVERIES,
            retry=RetryPolicy(jitter="none"),
        )
    else:
        base = _as_declared(options, topics, declared)
    return replace(
        base,
        start=base.start if options.start is None else options.start,
        max_events=min(base.max_events, options.queue_capacity, MOST_EVENTS),
        retry=_retry(base.retry, options.retry),
        lease_ms=options.lease_ms,
        launch_timeout_ms=options.lease_ms,
        lasting=False,
        sticky_ms=STICKY_MS,
    )


def _as_declared(options: Options, topics: tuple[str, ...], declared: GroupConfig) -> GroupConfig:
    """What is to be tried again comes to any worker of the group, so each must take all of it."""
    missing = [topic for topic in declared.topics if topic not in topics]
    if missing:
        raise UsageError(
            f"group {declared.name} also reads {', '.join(missing)}: subscribe to all of its "
            "topics, or declare another group for some"
        )
    if options.order not in (None, declared.order):
        raise UsageError(f"group {declared.name} is declared with order {declared.order}")
    return declared


def _order(order: Order | str) -> Order:
    try:
        return Order(order)
    except ValueError:
        known = ", ".join(Order)
        raise UsageError(f"{order!r} is no order of events ({known})") from None


def _retry(base: RetryPolicy, wanted: Retry | None) -> RetryPolicy:
    if wanted is None or isinstance(wanted, RetryPolicy):
        return wanted or base
    known = [each.name for each in fields(RetryPolicy)]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(
            f"a retry policy has no part {', '.join(unknown)} (parts: {', '.join(known)})"
        )
    return replace(base, **wanted)
