"""Recovering: what becomes of deliveries whose workers never came, or are gone. Pure."""

from collections.abc import Callable
from enum import Enum

from dagster_bus.core import delivery as life
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.failure import AttemptError, describe
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.reporting import Moment, decision_on
from dagster_bus.core.retry import RetryAfter


class Worker(Enum):
    """What is known of the worker that a delivery was handed to."""

    UNKNOWN = "unknown"
    COMING = "coming"
    GONE = "gone"


class WorkerGone(Exception):
    """The worker ended without settling its delivery."""


Look = Callable[[Delivery], Worker]


IsGone = Callable[[str], bool]
"""Whether a worker, by its name, is known to have ended."""


def nobody(_: str) -> bool:
    return False


def nothing_known(_: Delivery) -> Worker:
    return Worker.UNKNOWN


class Recovering:
    """One look at the deliveries of a group that are in flight, at one moment."""

    def __init__(self, config: GroupConfig, moment: Moment, look: Look) -> None:
        self._config = config
        self._moment = moment
        self._now_ms = moment.now_ms
        self._look = look
        self._told: dict[str, tuple[WorkerGone, AttemptError]] = {}

    def next_state(self, delivery: Delivery) -> Delivery | None:
        """The next state of a delivery in flight whose time is up or whose worker is gone."""
        if delivery.state is State.RESERVED:
            return self._unclaimed(delivery)
        expired = delivery.is_due(self._now_ms)
        if not expired and self._look(delivery) is not Worker.GONE:
            return None
        if delivery.exhausted:  # this worker was only to look; another one will
            pause = RetryAfter(self._config.retry.max_delay_ms)
            return life.take_back(delivery, now_ms=self._now_ms, error=None, decision=pause)
        cause, told = self._cause(
            f"the lease ran out after {self._config.lease_ms} ms without a heartbeat"
            if expired
            else "the worker ended without settling its delivery"
        )
        error = AttemptError(
            attempt=delivery.attempt,
            type=told.type,
            message=told.message,
            traceback=told.traceback,
            worker=delivery.worker,
            at_ms=told.at_ms,
        )
        decision = decision_on(self._config, delivery, cause, self._moment)
        return life.take_back(delivery, now_ms=self._now_ms, error=error, decision=decision)

    def _unclaimed(self, delivery: Delivery) -> Delivery | None:
        if not delivery.is_due(self._now_ms):
            return None
        if self._look(delivery) is Worker.COMING:
            timeout_ms = self._config.launch_timeout_ms
            return life.extend_reservation(
                delivery, now_ms=self._now_ms, launch_timeout_ms=timeout_ms
            )
        return life.release_reservation(delivery, now_ms=self._now_ms)

    def _cause(self, message: str) -> tuple[WorkerGone, AttemptError]:
        """An error, and how it is kept. After a crash very many workers are gone for one and the
        same reason, and describing it takes longer than deciding what follows."""
        if message not in self._told:
            cause = WorkerGone(message)
            error = describe(cause, attempt=1, worker=None, at_ms=self._now_ms)
            self._told[message] = cause, error
        return self._told[message]
