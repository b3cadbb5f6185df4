"""What the rules have in common: a mistake at its place, and keys of which one is needed."""

from collections.abc import Iterator, Sequence

from dagster_bus.errors import Problem
from dagster_bus.spec.hints import Path, dotted
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.shapes import known_keys


def wrong(loaded: LoadedSpec, place: Path, message: str) -> Problem:
    """A mistake that is told with the path it stands at."""
    return loaded.problem(place, f"{dotted(place)}: {message}")


def needs_one(
    loaded: LoadedSpec, place: Path, keys: Sequence[str], *, only: bool = False
) -> Iterator[Problem]:
    """One of some keys must be there; `only` one if so asked."""
    written = [key for key in keys if loaded.is_written(*place, key)]
    if not written and is_understood(loaded, place):
        yield wrong(loaded, place, f"one of these keys is needed: {', '.join(keys)}")
    if only:
        yield from only_one(loaded, place, written)


def is_understood(loaded: LoadedSpec, place: Path) -> bool:
    """Whether every key at a place is known; else one of them may be meant for what is missed."""
    return set(loaded.keys(*place)) <= set(known_keys(place))


def only_one(loaded: LoadedSpec, place: Path, keys: Sequence[str]) -> Iterator[Problem]:
    """Of some keys, all but the one that stands first are too many."""
    written = [key for key in loaded.keys(*place) if key in keys]
    for extra in written[1:]:
        message = f"{written[0]} and {extra} exclude each other (remove one)"
        yield wrong(loaded, (*place, extra), message)
