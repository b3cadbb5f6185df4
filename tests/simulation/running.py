"""Runs histories, and tells of one that went wrong."""

import random
from collections import Counter
from collections.abc import Callable

from dagster_bus.core.store import Store
from dagster_bus.stores import open_memory_store
from tests.simulation.world import World

STEPS = 100
TOLD = 30
"""The last steps of a history that are told if it goes wrong."""


class WentWrong(AssertionError):
    """A history broke a promise."""


def run(
    seed: int,
    store: Store | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Counter[str]:
    """Live through the history of a seed, on an empty store, and say what came to pass in it."""
    dice = random.getstate()
    store = store or open_memory_store()
    world = World(seed, store, tell)
    try:
        world.live(STEPS)
        world.end()
    except Exception as error:
        groups, last = world.story[: len(world.configs)], world.story[-TOLD:]
        story = "\n".join([*groups, "…", *last])
        raise WentWrong(
            f"seed {seed} went wrong: {type(error).__name__}: {error}\n{story}\n"
            f"To see it from its beginning: make simulate SEED={seed}"
        ) from error
    finally:
        store.close()
        random.setstate(dice)
    return world.counts
