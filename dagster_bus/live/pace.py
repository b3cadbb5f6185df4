"""How much to take at once, when to report, and how long to sleep. Pure.

Whoever takes many events at once works fast; whoever takes few shares with others, and comes back
in time for what is to be tried again. So a worker takes about as much as it does in half a second.
"""

from collections.abc import Iterable

from dagster_bus.core.store import GroupView

FIRST_TAKE = 16
QUICK_S = 0.25
SLOW_S = 1.0

FLUSH_S = 0.005
"""Outcomes are reported when none has come for so long …"""
HOLD_S = 0.1
"""… or when the first of them is this old."""

ROUND_S = 0.0015
"""How far apart the steps of workers that keep up are at least: each costs about as much for ten
events as for one."""

LOOK_EVERY_S = 0.5
"""What no listener tells of, such as a process that died, is found out by looking so often."""

RECENT_MS = 20
"""What became due between two looks at the clock is seen at once."""


def next_take(take: int, *, filled: bool, took_s: float, least: int, most: int) -> int:
    """How many events to take after `take` were asked for, and worked off in so long. `filled`
    says whether there were as many."""
    if took_s > SLOW_S:
        take //= 2
    elif filled and took_s < QUICK_S:
        take *= 2
    return max(min(take, most), min(least, most), 1)


def flush_at(first_s: float, last_s: float) -> float:
    """When to report outcomes, of which the first and the last came at these times."""
    return min(last_s + FLUSH_S, first_s + HOLD_S)


def next_look_s(view: GroupView, now_ms: int, own: Iterable[str]) -> float:
    """How long a worker that found nothing to do may sleep, unless it is woken: until the next
    wait or lease of somebody else is over. The view was asked for what is due by then."""
    mine = set(own)
    return until_s(
        (each.due_ms for each in (*view.due, *view.in_flight) if each.id not in mine), now_ms
    )


def until_s(times_ms: Iterable[int], now_ms: int) -> float:
    """How long it is to the first of some times, and no longer than without them. What has been
    due for a while is none to wake for: if it could be taken, it would have been."""
    ahead = [at_ms for at_ms in times_ms if at_ms > now_ms - RECENT_MS]
    return max(min((min(ahead, default=now_ms + 60_000) - now_ms) / 1_000, LOOK_EVERY_S), 0.001)
