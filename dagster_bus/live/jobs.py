"""What is handed to a handler, and what came of it."""

from typing import NamedTuple

from dagster_bus.core.event import Event
from dagster_bus.core.ranges import Place


class Job(NamedTuple):
    """One event on its way to a handler."""

    event: Event
    place: Place
    attempt: int = 1
    delivery: str | None = None
    """The delivery that the event came with; none if the subscriber reads for itself alone."""


class Ended(NamedTuple):
    """A job that the handler is done with, or was too slow for."""

    job: Job
    error: BaseException | None = None


def in_words(error: BaseException) -> str:
    """What an error says. Asking it may fail too, and must not be the end of all."""
    try:
        return str(error)
    except Exception as unreadable:  # noqa: BLE001
        return f"(its message cannot be read: {type(unreadable).__name__})"
