"""Python's search for garbage, put off while thousands of definitions are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing that is made here is garbage, and going over all of it again and again would take a
    third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            _take_for_old()
            gc.enable()


def _take_for_old() -> None:
    """All that there is goes to the oldest generation as it is; else each generation would be gone
    over once more. Somebody's own frozen objects stay frozen."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
