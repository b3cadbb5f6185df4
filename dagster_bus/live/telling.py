"""Telling of what went wrong: to the log, the counters, the user's hooks, and by signals."""

import logging
from dataclasses import dataclass, field

from dagster_bus.core.clock import Clock
from dagster_bus.live.counters import Counters
from dagster_bus.live.ears import Ears
from dagster_bus.live.errands import Errands
from dagster_bus.live.hands import Hands
from dagster_bus.live.jobs import Job, in_words
from dagster_bus.live.loop import LoopThread
from dagster_bus.live.office import Offices
from dagster_bus.live.options import Options
from dagster_bus.live.signals import HANDLER_ERROR, SUBSCRIBER_DISABLED, Signals

LOGGER = logging.getLogger("dagster_bus")


@dataclass(frozen=True, slots=True)
class Shared:
    """What the subscriptions of a bus have in common."""

    clock: Clock
    counters: Counters
    signals: Signals
    errands: Errands
    ears: Ears
    hands: Hands
    loop: LoopThread
    offices: Offices = field(default_factory=Offices)


@dataclass(frozen=True, slots=True)
class Teller:
    """Speaks for one subscription. One that receives signals sends none."""

    id: str
    pattern: str
    options: Options
    shared: Shared
    is_silent: bool = False

    def failed(self, job: Job, error: BaseException) -> None:
        """An attempt failed: one entry in the log, and all who want to know."""
        event, group = job.event, self.options.group
        shown = f"{type(error).__name__}: {in_words(error)}"
        LOGGER.warning(
            "%s: attempt %d at %s/%d:%d failed: %s",
            group or self.pattern,
            job.attempt,
            *job.place,
            shown,
            extra={
                "group": group,
                "topic": event.topic,
                "partition": event.partition,
                "offset": event.offset,
                "attempt": job.attempt,
                "error": shown,
            },
        )
        self.shared.counters.add("handler_threw", event.topic)
        hook = self.options.on_error
        if hook is not None:
            self.shared.errands.run(lambda: hook(event, error))
        if not self.is_silent:
            told = {"event": event.id, "attempt": job.attempt, "error": shown}
            self.shared.signals.send(HANDLER_ERROR, {**self._self(), **job.place._asdict(), **told})

    def disabled(self, topic: str, reason: str) -> None:
        """The subscriber could not keep up, and gets no more events."""
        LOGGER.warning("the subscriber of %s is disabled: %s", self.pattern, reason)
        self.shared.counters.add("disabled_by_backpressure", topic)
        hook = self.options.on_disabled
        if hook is not None:
            self.shared.errands.run(lambda: hook(reason))
        if not self.is_silent:
            told = {**self._self(), "topic": topic, "reason": reason}
            self.shared.signals.send(SUBSCRIBER_DISABLED, told)

    def _self(self) -> dict[str, str | None]:
        return {"subscription": self.id, "pattern": self.pattern, "group": self.options.group}
