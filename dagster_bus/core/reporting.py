"""What a worker says of the events it holds, and the change that follows from it. Pure.

Events that were dealt with leave the delivery. Those that failed go on in deliveries of their own,
so that they hold up nobody: they wait for their next attempt, or are buried. The rest stays with
the worker.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from dagster_bus.core import breaker as circuit
from dagster_bus.core import delivery as life
from dagster_bus.core.breaker import Breaker
from dagster_bus.core.delivery import Delivery, OnExhausted, Outcome
from dagster_bus.core.failure import describe, fingerprint
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.ranges import Ranges, count, joined
from dagster_bus.core.retry import Decision, GiveUp, RetryAfter, decide, names_of
from dagster_bus.core.store import Burial, Change, Tally
from dagster_bus.errors import UsageError


@dataclass(frozen=True, slots=True)
class Failed:
    """Events that share a fate, and the error that befell them."""

    ranges: Ranges
    error: BaseException
    behind: Ranges = ()
    """Events that may not be done before these. They wait with them, and have not failed; if these
    are done or given up, they start afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How some of a delivery's events ended; no event may be named twice."""

    processed: Ranges = ()
    filtered: Ranges = ()
    expired: Ranges = ()
    failed: tuple[Failed, ...] = ()
    """To be tried again by the retry policy; the events of each together."""
    refused: tuple[Failed, ...] = ()
    """Not to be tried again, whatever the policy says."""
    returned: Ranges = ()
    """Not begun; somebody else is to do it. No attempt is counted."""
    left_out: Tally = field(default_factory=Tally)
    """Of the processed ones so many were filtered out or had expired, if only their number is
    known."""

    @property
    def size(self) -> int:
        settled = count(self.processed) + count(self.filtered) + count(self.expired)
        failed = (*self.failed, *self.refused)
        apart = sum(count(each.ranges) + count(each.behind) for each in failed)
        return settled + apart + count(self.returned)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a decision is made by: the time, the dice, and names for new deliveries."""

    now_ms: int
    dice: Callable[[], float]
    new_id: Callable[[], str]


def change_of(
    config: GroupConfig,
    current: Delivery,
    report: Report,
    moment: Moment,
    breaker: Breaker | None = None,
) -> Change:
    """The change that a report leads to. Its first delivery is the one reported on. `breaker` is
    the present state of the group's circuit breaker, if it has one."""
    next_state, apart = _next_states(config, current, report, moment)
    deliveries = (next_state, *apart)
    done = _done(report)
    return Change(
        group=config.name,
        deliveries=deliveries,
        burials=burials_of(config, deliveries),
        done=done,
        breaker=_next_breaker(config, report, done, moment.now_ms, breaker),
        lasting=config.lasting,
    )


def _done(report: Report) -> Tally:
    left_out = report.left_out
    return Tally(
        processed=count(report.processed) - left_out.settled,
        filtered=count(report.filtered) + left_out.filtered,
        expired=count(report.expired) + left_out.expired,
    )


def burials_of(config: GroupConfig, deliveries: Iterable[Delivery]) -> tuple[Burial, ...]:
    """The dead letters that follow from the next states of some deliveries."""
    return tuple(
        Burial(each, config.filter, fingerprint(each.errors[-1]), each.due_ms, config.mirrors)
        for each in deliveries
        if each.outcome is Outcome.DEAD_LETTERED
    )


def change_of_giving_up(config: GroupConfig, current: Delivery, moment: Moment) -> Change:
    """The change that follows when a holder has seen that work without attempts left was not done.
    Its first delivery is the one given up."""

    def end(delivery: Delivery) -> Delivery:
        return life.give_up(
            delivery,
            token=current.token,
            now_ms=moment.now_ms,
            on_exhausted=config.on_exhausted,
        )

    blocks = config.on_exhausted is OnExhausted.BLOCK
    deliveries = [end(current)] if blocks else _let_go(current, (), moment, end)
    return Change(
        group=config.name,
        deliveries=tuple(deliveries),
        burials=burials_of(config, deliveries),
        lasting=config.lasting,
    )


def _next_states(
    config: GroupConfig, current: Delivery, report: Report, moment: Moment
) -> tuple[Delivery, list[Delivery]]:
    """The next state of the delivery, and the new ones that part of its events go on in."""
    if len(report.failed) == 1 and report.size == current.size:
        (failed,) = report.failed
        if failed.ranges == current.ranges:
            first, *apart = _after_failure(config, current, failed, moment)
            return first, apart
    apart = []
    rest = current
    for failed in report.failed:
        rest, part = _split(rest, failed.ranges, moment)
        rest, _ = _split(rest, failed.behind, moment)
        apart += _after_failure(config, part, failed, moment)
    for refused in report.refused:
        rest, part = _split(rest, refused.ranges, moment)
        rest, _ = _split(rest, refused.behind, moment)
        apart += _refused(part, refused, moment)
    if report.returned:
        rest, part = _split(rest, report.returned, moment)
        apart.append(life.hand_back(part, token=part.token, now_ms=moment.now_ms))
    settled = joined([*report.processed, *report.filtered, *report.expired])
    if count(settled) + sum(each.size for each in apart) != report.size:
        raise UsageError(f"a report on delivery {current.id} names an event twice")
    rest, _ = _split(rest, settled, moment)
    return life.settle_rest(rest, now_ms=moment.now_ms), apart


def _split(delivery: Delivery, part: Ranges, moment: Moment) -> tuple[Delivery, Delivery]:
    return life.split(delivery, part, id=moment.new_id(), now_ms=moment.now_ms)


def _after_failure(
    config: GroupConfig, part: Delivery, failed: Failed, moment: Moment
) -> list[Delivery]:
    """What becomes of events that have failed together, and of those behind them. The first of the
    deliveries has the name of the given one."""
    decision = decision_on(config, part, failed.error, moment)
    on_exhausted = config.on_exhausted
    isolates = on_exhausted is OnExhausted.ISOLATE and part.size > 1 and not part.exhausted
    if isinstance(decision, RetryAfter) or on_exhausted is OnExhausted.BLOCK or isolates:
        together = life.with_behind(part, failed.behind)
        return [_failed(together, failed, decision, on_exhausted, moment.now_ms)]
    return _let_go(part, failed.behind, moment, lambda each: _dead(each, failed, moment.now_ms))


def _refused(part: Delivery, refused: Failed, moment: Moment) -> list[Delivery]:
    """Events are given up whatever the policy says, those too that had not failed before."""
    others: list[Delivery] = []
    if part.behind:
        part, other = _split(part, part.behind, moment)
        others.append(_dead(other, refused, moment.now_ms))
    own = _let_go(part, refused.behind, moment, lambda each: _dead(each, refused, moment.now_ms))
    return own + others


def _let_go(
    part: Delivery, tail: Ranges, moment: Moment, end: Callable[[Delivery], Delivery]
) -> list[Delivery]:
    """Give up on what has failed. What waited behind it starts afresh, in a delivery of its own."""
    waiting = joined([*part.behind, *tail])
    ended = end(life.narrowed(part, part.failing, now_ms=moment.now_ms))
    if not waiting:
        return [ended]
    other = replace(part, id=moment.new_id(), ranges=waiting, version=0)
    return [ended, life.resume(other, now_ms=moment.now_ms)]


def _dead(delivery: Delivery, failed: Failed, now_ms: int) -> Delivery:
    return _failed(delivery, failed, GiveUp(), OnExhausted.DEAD_LETTER, now_ms)


def decision_on(
    config: GroupConfig, delivery: Delivery, error: BaseException, moment: Moment
) -> Decision:
    """What follows when the present attempt of a delivery has failed."""
    if delivery.exhausted:
        return GiveUp()
    return decide(
        config.retry,
        delivery.attempt,
        moment.dice(),
        error_names=names_of(error),
        age_ms=moment.now_ms - delivery.created_ms,
    )


def _failed(
    delivery: Delivery,
    failed: Failed,
    decision: Decision,
    on_exhausted: OnExhausted,
    now_ms: int,
) -> Delivery:
    error = describe(failed.error, attempt=delivery.attempt, worker=delivery.worker, at_ms=now_ms)
    return life.fail(
        delivery,
        token=delivery.token,
        now_ms=now_ms,
        error=error,
        decision=decision,
        on_exhausted=on_exhausted,
    )


def _next_breaker(
    config: GroupConfig, report: Report, done: Tally, now_ms: int, breaker: Breaker | None
) -> tuple[Breaker, Breaker] | None:
    """What was filtered out or had expired says nothing of whether the work succeeds."""
    policy = config.retry.breaker
    if policy is None or breaker is None:
        return None
    if report.failed:
        following = circuit.after_failure(breaker, policy, now_ms)
    elif done.processed > 0:
        following = circuit.after_success(breaker, policy, now_ms)
    else:
        return None
    return None if following == breaker else (breaker, following)


def all_of(delivery: Delivery, error: BaseException) -> Report:
    """The report of a worker that failed as a whole."""
    return Report(failed=(Failed(delivery.ranges, error),))
