"""The life of a delivery, as pure functions from one state to the next.

A delivery hands offset ranges to one worker. It is reserved for a worker that is being started,
leased by that worker when it runs, and ends settled, or waits for its next attempt:

    reserve ─▶ RESERVED ─lease─▶ RUNNING ─settle─▶ DONE (processed)
                   ▲                 │ fail, or the lease expires
                   ├──── WAITING ◀───┤
                   │                 ├─ no attempt is left ─▶ DONE (dead-lettered)
                   └─── resume ──────┴─ … and the group is to stop ─▶ BLOCKED

A holder may report on some of its events before the rest: those leave the delivery, and what of
them is not settled goes on in a delivery of its own. A reservation that expires returns to WAITING
at once and counts for nothing. Only a holder can give up: a worker that vanished may have done its
work, and its successor is the one who can look. So the work of a vanished worker always waits for
another one, also when no attempt is left: it is exhausted then, and its next holder is to look, to
find out which events fail alone, or to give up. Each lease gets a new fencing token; whoever shows
an old token, or comes after the lease has ended, is refused.

Where order matters, events that may not overtake a failed one wait behind it, in its delivery. Its
failures are not theirs: whenever only such events are left of a delivery, they start afresh. What
fails as a whole is held against those that failed before.

The functions here only say what the next state is: the store makes it so, if nobody else was
faster.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from dagster_bus.core.failure import AttemptError
from dagster_bus.core.ranges import Place, Ranges, count, covering, joined, within, without
from dagster_bus.core.retry import Decision, GiveUp, RetryAfter
from dagster_bus.core.topic import OffsetRange
from dagster_bus.errors import DeliveryError, LeaseLost, ReservationLost, UsageError


class State(StrEnum):
    RESERVED = "reserved"
    RUNNING = "running"
    WAITING = "waiting"
    BLOCKED = "blocked"
    DONE = "done"


class Outcome(StrEnum):
    PROCESSED = "processed"
    DEAD_LETTERED = "dead_lettered"
    ABANDONED = "abandoned"
    """The group was moved elsewhere, and nobody is to do this work."""


class OnExhausted(StrEnum):
    """What becomes of a batch whose attempts are used up."""

    ISOLATE = "isolate"
    DEAD_LETTER = "dead_letter"
    BLOCK = "block"


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
    exhausted: bool = False
    """No attempt is left: whoever holds it next is to look, to isolate or to give up."""
    redriven: bool = False
    """Its events are dead letters that were sent back, and are read from there."""
    behind: tuple[OffsetRange, ...] = ()
    """Those of its events that only wait for others of them, and did not fail themselves."""
    doubtful: bool = False
    """Its last holder left without a word: whether the work was done, only the next one can see."""
    looks: int = 0
    """How many holders of an exhausted delivery have looked which events fail alone, in vain."""
    version: int = 1

    @property
    def size(self) -> int:
        return count(self.ranges)

    @property
    def in_flight(self) -> bool:
        return self.state in (State.RESERVED, State.RUNNING)

    @property
    def failing(self) -> Ranges:
        """Those of its events that its errors tell of."""
        return without(self.ranges, self.behind)

    def is_behind(self, place: Place) -> bool:
        return bool(self.behind) and bool(within(covering([place]), self.behind))

    def is_due(self, now_ms: int) -> bool:
        return self.state not in (State.DONE, State.BLOCKED) and now_ms >= self.due_ms


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


def open_leased(
    *,
    id: str,
    group: str,
    window: str,
    ranges: tuple[OffsetRange, ...],
    worker: str,
    now_ms: int,
    lease_ms: int,
) -> Delivery:
    """A first reservation and its lease at once, by a worker that is there already."""
    return Delivery(
        id=id,
        group=group,
        window=window,
        ranges=ranges,
        state=State.RUNNING,
        token=1,
        worker=worker,
        due_ms=now_ms + lease_ms,
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
    return put_aside(delivery, now_ms=now_ms)


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


def keep(delivery: Delivery, *, token: int, now_ms: int, lease_ms: int) -> Delivery:
    """A heartbeat of somebody who watches the worker, and knows that it was there all the time: it
    counts even if it comes late, as long as nobody took the work over."""
    _require_holder(delivery, token)
    return _next(delivery, due_ms=now_ms + lease_ms)


def settle(delivery: Delivery, *, token: int, now_ms: int) -> Delivery:
    """The work is done and its result is kept."""
    require_lease(delivery, token=token, now_ms=now_ms)
    return _next(delivery, state=State.DONE, outcome=Outcome.PROCESSED, due_ms=now_ms)


def fail(
    delivery: Delivery,
    *,
    token: int,
    now_ms: int,
    error: AttemptError,
    decision: Decision,
    on_exhausted: OnExhausted = OnExhausted.DEAD_LETTER,
) -> Delivery:
    """The worker says that it failed."""
    require_lease(delivery, token=token, now_ms=now_ms)
    failed = replace(delivery, errors=(*delivery.errors, error), doubtful=False)
    if isinstance(decision, RetryAfter):
        due_ms = now_ms + decision.delay_ms
        return _next(failed, state=State.WAITING, worker=None, due_ms=due_ms)
    if on_exhausted is OnExhausted.BLOCK:
        return _blocked(failed, now_ms)
    if on_exhausted is OnExhausted.ISOLATE and delivery.size > 1 and not delivery.exhausted:
        return _next(failed, state=State.WAITING, worker=None, exhausted=True, due_ms=now_ms)
    return _dead(failed, now_ms)


def split(delivery: Delivery, part: Ranges, *, id: str, now_ms: int) -> tuple[Delivery, Delivery]:
    """A delivery without some of its events, and another one, not written yet, that has them and
    all that was said of them. The caller says what becomes of both."""
    left = without(delivery.ranges, part)
    if count(left) + count(part) != delivery.size:
        raise UsageError(f"delivery {delivery.id} does not hold all of {', '.join(map(str, part))}")
    other = replace(narrowed(delivery, part, now_ms=now_ms), id=id, version=0)
    return narrowed(delivery, left, now_ms=now_ms), other


def narrowed(delivery: Delivery, part: Ranges, *, now_ms: int) -> Delivery:
    """A delivery with some of its events only. If none of these has failed, nothing is known
    against them."""
    if not delivery.behind:
        return replace(delivery, ranges=part)
    behind = within(delivery.behind, part)
    if part and count(behind) == count(part):
        return _afresh(replace(delivery, ranges=part), now_ms)
    return replace(delivery, ranges=part, behind=behind)


def settle_rest(delivery: Delivery, *, now_ms: int) -> Delivery:
    """The next state of a delivery some of whose events have left it: if none is left, it is done;
    otherwise its holder goes on."""
    if delivery.ranges:
        return _next(delivery)
    return _next(delivery, state=State.DONE, outcome=Outcome.PROCESSED, due_ms=now_ms)


def settle_all(delivery: Delivery, *, now_ms: int) -> Delivery:
    """The same when all events have left it."""
    return _next(delivery, ranges=(), state=State.DONE, outcome=Outcome.PROCESSED, due_ms=now_ms)


def resume(delivery: Delivery, *, now_ms: int) -> Delivery:
    """Somebody has mended what blocked the group, or what these events waited for has ended: the
    work starts afresh."""
    afresh = _afresh(delivery, now_ms)
    return _next(afresh, state=State.WAITING, worker=None, due_ms=now_ms)


def put_aside(delivery: Delivery, *, now_ms: int) -> Delivery:
    """Whoever was to do this work is not any more, and another one is. No attempt is counted."""
    doubtful = delivery.doubtful or delivery.state is State.RUNNING
    return _next(delivery, state=State.WAITING, worker=None, due_ms=now_ms, doubtful=doubtful)


def abandon(delivery: Delivery, *, now_ms: int) -> Delivery:
    """Nobody is to do this work any more; a holder is refused from now on."""
    return _next(delivery, state=State.DONE, outcome=Outcome.ABANDONED, due_ms=now_ms)


def join(delivery: Delivery, ranges: Ranges) -> Delivery:
    """Let more events wait behind those of a delivery that waits."""
    if delivery.state is not State.WAITING:
        raise DeliveryError(f"delivery {delivery.id} is {delivery.state} and takes no more events")
    return _next(with_behind(delivery, ranges))


def with_behind(delivery: Delivery, ranges: Ranges) -> Delivery:
    """A delivery, not written yet, with more events that are to wait for those it has."""
    return replace(
        delivery,
        ranges=joined([*delivery.ranges, *ranges]),
        behind=joined([*delivery.behind, *ranges]),
    )


def give_up(
    delivery: Delivery,
    *,
    token: int,
    now_ms: int,
    on_exhausted: OnExhausted = OnExhausted.DEAD_LETTER,
) -> Delivery:
    """The worker has seen that the work was not done, and may not try it any more."""
    require_lease(delivery, token=token, now_ms=now_ms)
    if on_exhausted is OnExhausted.BLOCK:
        return _blocked(delivery, now_ms)
    return _dead(delivery, now_ms)


def hand_back(
    delivery: Delivery, *, token: int, now_ms: int, wait_ms: int = 0, looked: bool = False
) -> Delivery:
    """The worker was told to stop or could not begin, and leaves the work to another, after a wait
    if there is one. No attempt is counted, but a look in vain is."""
    require_lease(delivery, token=token, now_ms=now_ms)
    left = replace(delivery, looks=delivery.looks + looked)
    return put_aside(left, now_ms=now_ms + wait_ms)


def take_back(
    delivery: Delivery, *, now_ms: int, error: AttemptError | None, decision: Decision
) -> Delivery:
    """The worker is gone: its lease has run out, or it is known to have ended without a word."""
    return _next(
        delivery,
        state=State.WAITING,
        errors=delivery.errors if error is None else (*delivery.errors, error),
        worker=None,
        exhausted=delivery.exhausted or isinstance(decision, GiveUp),
        looks=delivery.looks + delivery.exhausted,
        doubtful=True,
        due_ms=now_ms if isinstance(decision, GiveUp) else now_ms + decision.delay_ms,
    )


def require_lease(delivery: Delivery, *, token: int, now_ms: int) -> None:
    """Refuse whoever does not hold the lease now."""
    _require_holder(delivery, token)
    if now_ms >= delivery.due_ms:
        raise LeaseLost(
            f"the lease on delivery {delivery.id} (token {token}) ran out "
            f"{now_ms - delivery.due_ms} ms ago; its work will be handed on"
        )


def _require_holder(delivery: Delivery, token: int) -> None:
    if delivery.state is not State.RUNNING or delivery.token != token:
        raise LeaseLost(
            f"delivery {delivery.id} is {delivery.state} with token {delivery.token}; "
            f"the lease with token {token} is over and its work was handed on"
        )


def _afresh(delivery: Delivery, now_ms: int) -> Delivery:
    return replace(
        delivery,
        errors=(),
        attempt=1,
        exhausted=False,
        looks=0,
        doubtful=False,
        behind=(),
        created_ms=now_ms,
    )


def _blocked(delivery: Delivery, now_ms: int) -> Delivery:
    return _next(delivery, state=State.BLOCKED, worker=None, due_ms=now_ms)


def _dead(delivery: Delivery, now_ms: int) -> Delivery:
    return _next(delivery, state=State.DONE, outcome=Outcome.DEAD_LETTERED, due_ms=now_ms)


def _next(delivery: Delivery, **changes: object) -> Delivery:
    return replace(delivery, version=delivery.version + 1, **changes)  # type: ignore[arg-type]
