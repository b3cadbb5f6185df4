"""A bus with subscribers: handlers that are called while events come."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from dagster_bus.core import bus as core
from dagster_bus.core.checking import PayloadSchema
from dagster_bus.core.clock import Clock, system_clock
from dagster_bus.core.event import Message, Published
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.groups import Group
from dagster_bus.core.store import Store
from dagster_bus.core.topic import SchemaConfig, TopicConfig, require_pattern
from dagster_bus.errors import SchemaMismatch, UsageError
from dagster_bus.live.counters import Counters
from dagster_bus.live.crew import Handler, handling
from dagster_bus.live.ears import Ears
from dagster_bus.live.errands import Errands
from dagster_bus.live.following import Follower
from dagster_bus.live.hands import Hands
from dagster_bus.live.loop import LoopThread
from dagster_bus.live.mailbox import Mailbox
from dagster_bus.live.metrics import Metrics
from dagster_bus.live.options import Options, Wishes, checked, group_config
from dagster_bus.live.presence import worker_name
from dagster_bus.live.signals import MESSAGE_REJECTED, Signals, is_for_signals
from dagster_bus.live.subscription import Subscription
from dagster_bus.live.telling import Shared, Teller
from dagster_bus.live.worker import Worker

H = TypeVar("H", bound=Handler)

LOOK_EVERY_S = 0.01
"""How often `idle` looks."""


class LiveBus(core.Bus):
    """Topics and groups, and the handlers of this process. What publishes never waits for them."""

    def __init__(
        self,
        store: Store,
        topics: Iterable[TopicConfig],
        groups: Iterable[GroupConfig] | None = (),
        clock: Clock = system_clock,
        *,
        compile_schema: Callable[[SchemaConfig], PayloadSchema] | None = None,
        memory: Store | None = None,
        metrics_every_s: float | None = None,
    ) -> None:
        super().__init__(store, topics, groups, clock, compile_schema=compile_schema, memory=memory)
        self._shared = Shared(
            clock, Counters(), Signals(clock), Errands(), Ears(), Hands(), LoopThread()
        )
        self._metrics_every_s = metrics_every_s
        """How often to tell the counters on the topic for that; never if None."""
        self._metrics = Metrics(
            self._store, clock, self._shared.counters, worker_name("metrics"), self._lags
        )
        self._subscriptions: dict[str, Subscription] = {}
        self._made: dict[str, GroupConfig] = {}
        """Groups that are not declared, as they were first subscribed to here."""
        self._registering = threading.RLock()
        self._ending = threading.RLock()

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Those that are at work."""
        return tuple(self._subscriptions.values())

    def subscribe(self, pattern: str, handler: Handler, **wishes: Unpack[Wishes]) -> Subscription:
        """Call a handler, a function or an asynchronous one, with each event of the topics that a
        pattern selects.

        With a `group` each event is handled by one of the group's workers, wherever they run: kept
        until then, tried again by the retry policy if the handler fails or takes too long, and put
        into the dead letters in the end. Without one, the handler gets what is published while it
        is there, once. A pattern `bus.…` selects the signals of the bus in this process."""
        return self._subscribe(pattern, handler, checked(wishes))

    def subscribe_once(
        self, pattern: str, handler: Handler, **wishes: Unpack[Wishes]
    ) -> Subscription:
        """Call a handler with one event, and no more."""
        return self._subscribe(pattern, handler, checked(wishes, once=True))

    def on(self, pattern: str, **wishes: Unpack[Wishes]) -> Callable[[H], H]:
        """As `subscribe`, for the function that follows."""

        def register(handler: H) -> H:
            self.subscribe(pattern, handler, **wishes)
            return handler

        return register

    def unsubscribe(self, id: str, timeout: float = 30.0) -> None:
        """Take a handler off. One that is not there, or not any more, is none to complain of."""
        subscription = self._subscriptions.get(id)
        if subscription is not None:
            subscription.unsubscribe(timeout)

    def idle(self, timeout: float | None = None) -> bool:
        """Wait until all that was published before was handled here, or waits for another attempt;
        says whether that is so within some time."""
        self._require_outside("idle")
        self._require_open()
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        questions = [each.resting() for each in self.subscriptions]
        questions.append(lambda: self._shared.errands.is_idle)
        while not all(ask() for ask in questions):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(LOOK_EVERY_S, left_s))
        return True

    def group(self, name: str) -> Group:
        """A group that is declared, or has had subscribers here."""
        self._require_open()
        if name in self._made and name not in self._groups:
            config = self._made[name]
            return Group(config, self._store_of(config.topics), self._clock)
        return super().group(name)

    def counters(self) -> dict[str, dict[str, int]]:
        """What was counted in this process so far, by topic: what it published, and what came of
        its subscriptions."""
        return self._shared.counters.snapshot()

    def publish_many(self, topic: str, messages: Iterable[Message | Any]) -> list[Published]:
        try:
            published = super().publish_many(topic, messages)
        except SchemaMismatch as error:
            self._shared.counters.add("schema_rejected", topic)
            self._shared.signals.send(MESSAGE_REJECTED, {"topic": topic, "reason": str(error)})
            raise
        self._shared.counters.add("published", topic, sum(not each.duplicate for each in published))
        if self._subscriptions:
            self._shared.ears.ring(topic)
        return published

    def close(self, timeout: float = 30.0) -> None:
        """Refuse new events and subscriptions, wait so long for handlers at work, hand the rest of
        their events back, and let go of the store. Harmless when repeated."""
        self._require_outside("close")
        with self._ending:
            until_s = time.monotonic() + timeout
            with self._registering:
                for each in self.subscriptions:
                    each.stop(timeout)
                self._closed = True
            for each in self.subscriptions:
                each.join(until_s)
            self._shared.ears.close()
            self._shared.errands.close()
            self._shared.hands.close()
            self._shared.loop.close()
            self._metrics.close()
            super().close()

    def _subscribe(self, pattern: str, handler: Handler, options: Options) -> Subscription:
        if not callable(handler):
            raise UsageError(f"a handler is a function of an event, and not {handler!r}")
        id = secrets.token_hex(6)
        with self._registering:
            self._require_open()
            if is_for_signals(pattern):
                made = self._to_signals(id, pattern, handler, options)
            elif options.group is None:
                made = self._to_topics(id, pattern, handler, options)
            else:
                made = self._to_group(id, pattern, handler, options)
            self._subscriptions[id] = made
            made.start(lambda: self._forget(id))
            if self._metrics_every_s is not None:
                self._metrics.start(self._metrics_every_s)
        return made

    def _to_group(self, id: str, pattern: str, handler: Handler, options: Options) -> Subscription:
        found = self.select(pattern)
        topics = tuple(name for name in found if self._topics[name].durable)
        if not topics:
            raise UsageError(f"{pattern} selects only topics in memory, which have no groups")
        config = replace(
            group_config(options, topics, self._groups.get(options.group or "")),
            mirrors=self._mirrors,
        )
        first = self._made.setdefault(config.name, config)
        if (first.topics, first.order) != (config.topics, config.order):
            raise UsageError(
                f"group {config.name} has subscribers here that read {', '.join(first.topics)} "
                f"with order {first.order}: all of a group do the same"
            )
        teller = Teller(id, pattern, options, self._shared)
        worker = Worker(teller, handler, config, self._store_of(topics))
        self._shared.ears.add(id, self._store, config.topics, worker.ring)
        return Subscription(id, pattern, config.topics, worker, (), self._shared)

    def _to_topics(self, id: str, pattern: str, handler: Handler, options: Options) -> Subscription:
        names = self.select(pattern)
        mailbox = Mailbox(Teller(id, pattern, options, self._shared), handler)
        start = options.start or "latest"
        followers = []
        for log in {self._log_of(self._topics[name]) for name in names}:
            own = [name for name in names if self._log_of(self._topics[name]) is log]
            followers.append(Follower(log.store, own, start, options.filter, self._clock))
        for number, each in enumerate(followers):
            self._shared.ears.add(f"{id}-{number}", each.store, each.topics, each.ring)
        return Subscription(id, pattern, names, mailbox, followers, self._shared)

    def _to_signals(
        self, id: str, pattern: str, handler: Handler, options: Options
    ) -> Subscription:
        require_pattern(pattern)
        if options.group is not None or options.start is not None:
            raise UsageError("signals of the bus are kept nowhere: no group or start fits them")
        mailbox = Mailbox(Teller(id, pattern, options, self._shared, is_silent=True), handler)
        self._shared.signals.add(id, pattern, mailbox.offer)
        return Subscription(id, pattern, (pattern,), mailbox, (), self._shared)

    def _lags(self) -> dict[str, int]:
        """What the groups that have, or had, subscribers here still have to do."""
        return {
            name: Group(config, self._store, self._clock).progress().lag
            for name, config in [*self._made.items()]
        }

    def _forget(self, id: str) -> None:
        self._shared.signals.remove(id)
        for name in (id, f"{id}-0", f"{id}-1"):
            self._shared.ears.remove(name)
        self._subscriptions.pop(id, None)

    def _require_outside(self, verb: str) -> None:
        if handling.get() in self._subscriptions:
            raise UsageError(f"a handler cannot call {verb}: it would wait for itself")
