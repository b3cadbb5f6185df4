"""The life of a delivery, as pure functions from one state to the next.

A delivery hands offset ranges to one worker. It is reserved for a worker that is being started,
leased by that worker when it runs, and ends settled, or waits for its next attempt:

    reserve ─▶ RESERVED ─lease─▶ RUNNING ─settle─▶ DONE (processed)
                   ▲                 │ fail, or the lease expires
                   └──── WAITING ◀───┤
                                     └─ the holder gives up ─▶ DONE (dead-lettered)

A reservation that expires returns to WAITING at once and counts for nothing. Only a holder can give
up: a worker that vanished may have done its work, and its successor is the one who can look. So the
work of a vanished worker always waits for another one, also when no attempt is left. Each lease
gets a new fencing token; whoever shows an old token, or comes after the lease has ended, is
refused. The functions here only say what the next state is: the store makes it so, if nobody else
was faster.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from dagster_bus.core.failure import AttemptError
from dagster_bus.core.retry import Decision, GiveUp
from dagster_bus.core.topic import OffsetRange
from dagster_bus.errors import LeaseLost, ReservationLost


class State(StrEnum):
    RESERVED = "reserved"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"


class Outcome(StrEnum):
    PROCESSED = "processed"
    DEAD_LETTERED = "dead_lettered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One handing-over. `due_ms` is when the state may be left without its holder: the end of a
    reservation, of a lease, or of a wait. `version` counts the states written so far."""

    id: str
    group: str
    window: str
    ranges: tuple[OffsetRange, ...]
    state: State
    outcome: Outcome | None = None
    attempt: int = 1
    reservation: int = 1
    token: int = 0
    due_ms: int
    worker: str | None = None
    errors: tuple[AttemptError, ...] = ()
    created_ms: int
    version: int = 1

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.ranges)

    @property
    def in_flight(self) -> bool:
        return self.state in (State.RESERVED, State.RUNNING)

    def is_due(self, now_ms: int) -> bool:
        return self.state is not State.DONE and now_ms >= self.due_ms


def open_delivery(
    *,
    id: str,
    group: str,
    window: str,
    ranges: tuple[OffsetRange, ...],
    now_ms: int,
    launch_timeout_ms: int,
) -> Delivery:
    """A first reservation of ranges that no delivery holds yet."""
    return Delivery(
        id=id,
        group=group,
        window=window,
        ranges=ranges,
        state=State.RESERVED,
        due_ms=now_ms + launch_timeout_ms,
        created_ms=now_ms,
    )


def reserve_again(delivery: Delivery, *, now_ms: int, launch_timeout_ms: int) -> Delivery:
    """The next reservation of a delivery that waits and is due."""
    return _next(
        delivery,
        state=State.RESERVED,
        attempt=len(delivery.errors) + 1,
        reservation=delivery.reservation + 1,
        worker=None,
        due_ms=now_ms + launch_timeout_ms,
    )


def extend_reservation(delivery: Delivery, *, now_ms: int, launch_timeout_ms: int) -> Delivery:
    """More time for a worker that is known to be on its way."""
    return _next(delivery, due_ms=now_ms + launch_timeout_ms)


def release_reservation(delivery: Delivery, *, now_ms: int) -> Delivery:
    """Take a reservation back from a worker that never came. No attempt is counted."""
    return _next(delivery, state=State.WAITING, worker=None, due_ms=now_ms)


def lease(
    delivery: Delivery, *, reservation: int, worker: str, now_ms: int, lease_ms: int
) -> Delivery:
    """The worker has started. Only the newest reservation may be turned into a lease, once."""
    if delivery.state is not State.RESERVED or delivery.reservation != reservation:
        raise ReservationLost(
            f"delivery {delivery.id} is {delivery.state} under reservation {delivery.reservation}; "
            f"reservation {reservation} no longer counts and this worker has nothing to do"
        )
    return _next(
        delivery,
        state=State.RUNNING,
        token=delivery.token + 1,
        worker=worker,
        due_ms=now_ms + lease_ms,
    )


def renew(delivery: Delivery, *, token: int, now_ms: int, lease_ms: int) -> Delivery:
    """A heartbeat: the lease now ends later."""
    require_lease(delivery, token=token, now_ms=now_ms)
    return _next(delivery, due_ms=now_ms + lease_ms)


def settle(delivery: Delivery, *, token: int, now_ms: int) -> Delivery:
    """The work is done and its result is kept."""
    require_lease(delivery, token=token, now_ms=now_ms)
    return _next(delivery, state=State.DONE, outcome=Outcome.PROCESSED, due_ms=now_ms)


def fail(
    delivery: Delivery, *, token: int, now_ms: int, error: AttemptError, decision: Decision
) -> Delivery:
    """The worker says that it failed."""
    require_lease(delivery, token=token, now_ms=now_ms)
    failed = replace(delivery, errors=(*delivery.errors, error))
    if isinstance(decision, GiveUp):
        return _dead(failed, now_ms)
    return _next(failed, state=State.WAITING, worker=None, due_ms=now_ms + decision.delay_ms)


def give_up(delivery: Delivery, *, token: int, now_ms: int) -> Delivery:
    """The worker has seen that the work was not done, and may not try it any more."""
    require_lease(delivery, token=token, now_ms=now_ms)
    return _dead(delivery, now_ms)


def hand_back(delivery: Delivery, *, token: int, now_ms: int) -> Delivery:
    """The worker was told to stop, and leaves the work to another. No attempt is counted."""
    require_lease(delivery, token=token, now_ms=now_ms)
    return _next(delivery, state=State.WAITING, worker=None, due_ms=now_ms)


def take_back(
    delivery: Delivery, *, now_ms: int, error: AttemptError | None, delay_ms: int
) -> Delivery:
    """The worker is gone: its lease has run out, or it is known to have ended without a word."""
    errors = delivery.errors if error is None else (*delivery.errors, error)
    return _next(
        delivery, state=State.WAITING, errors=errors, worker=None, due_ms=now_ms + delay_ms
    )


def require_lease(delivery: Delivery, *, token: int, now_ms: int) -> None:
    """Refuse whoever does not hold the lease now."""
    if delivery.state is not State.RUNNING or delivery.token != token:
        raise LeaseLost(
            f"delivery {delivery.id} is {delivery.state} with token {delivery.token}; "
            f"the lease with token {token} is over and its work was handed on"
        )
    if now_ms >= delivery.due_ms:
        raise LeaseLost(
            f"the lease on delivery {delivery.id} (token {token}) ran out "
            f"{now_ms - delivery.due_ms} ms ago; its work will be handed on"
        )


def _dead(delivery: Delivery, now_ms: int) -> Delivery:
    return _next(delivery, state=State.DONE, outcome=Outcome.DEAD_LETTERED, due_ms=now_ms)


def _next(delivery: Delivery, **changes: object) -> Delivery:
    return replace(delivery, version=delivery.version + 1, **changes)  # type: ignore[arg-type]
