"""Many things, a lot at a time.

With all groups in one definition Dagster's work grows with the square of their number, and a
definition for each takes a millisecond or two of its own."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

CHECKED_TOGETHER = 100
"""Groups whose checks are one definition."""

JOBS_TOGETHER = 20
"""Groups whose jobs are made in one go."""


def in_lots(items: Iterable[T], size: int) -> Iterator[Sequence[T]]:
    every = list(items)
    return (every[first : first + size] for first in range(0, len(every), size))


def lot_names(name: str, number: int, size: int) -> list[str]:
    """What the definitions for so many groups are called: the first has the plain name."""
    return [name, *(f"{name}_{lot}" for lot in range(2, -(-number // size) + 1))]
