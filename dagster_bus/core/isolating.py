"""Finding the events of a batch that fail alone, by halving. Pure, but for the trials.

Of a batch that fails, one half is tried. If that goes well the other must be the one that fails,
and is halved without being tried itself; only a single event is never condemned without a trial. So
a few bad events among very many are found in about twice as many trials for each as the batch can
be halved. Where most events are bad that would be a trial for each of them: there is a limit, and
what is known to fail then is given up as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from dagster_bus.core.ranges import Ranges, count, halves

MOST_TRIALS = 400

Trial = Callable[[Ranges], BaseException | None]
"""Does the work for some events, without keeping the result, and says what went wrong."""


@dataclass(frozen=True, slots=True)
class Poison:
    """Events that cannot be done, and why: a single one, unless trials had run out."""

    ranges: Ranges
    error: BaseException


@dataclass(slots=True)
class Findings:
    poison: list[Poison] = field(default_factory=list)
    trials: int = 0


def isolate(
    batch: Ranges, error: BaseException, try_out: Trial, most_trials: int = MOST_TRIALS
) -> Findings:
    """Which events of a batch fail alone, given that it fails as a whole with an error."""
    found = Findings()
    suspects: list[tuple[Ranges, BaseException, bool]] = [(batch, error, count(batch) > 1)]
    while suspects:
        ranges, why, has_failed = suspects.pop()
        is_single = count(ranges) == 1
        if found.trials >= most_trials and not (is_single and not has_failed):
            found.poison.append(Poison(ranges, why))
            continue
        if is_single:
            own = why if has_failed else _tried(ranges, try_out, found)
            if own is not None:
                found.poison.append(Poison(ranges, own))
            continue
        first, second = halves(ranges)
        own = _tried(first, try_out, found)
        if own is None:  # so the other one fails, or both only together
            suspects.append((second, why, False))
            continue
        other = _tried(second, try_out, found)
        if other is not None:
            suspects.append((second, other, True))
        suspects.append((first, own, True))
    return found


def _tried(ranges: Ranges, try_out: Trial, found: Findings) -> BaseException | None:
    found.trials += 1
    return try_out(ranges)
