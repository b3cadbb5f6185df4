"""Errors as they are kept with a delivery: small, readable, and comparable by fingerprint."""

import hashlib
import re
import traceback as tracebacks
from dataclasses import dataclass

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 6_000

_VARYING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # UUIDs
    r"|0x[0-9a-fA-F]+|\d+"  # addresses and numbers
    r"|'[^'\n]*'|\"[^\"\n]*\""  # quoted values
)

_CALLED = re.compile(r"\AAn error occurred while calling \S+\n: ")
_BEHIND = re.compile(r"\n+(?:JVM|Driver) stacktrace:.*\Z", re.DOTALL)
_PLACES = re.compile(r"\n[ \t]+(?:at [\w.$<>/]+[(.].*|\.\.\. \d+ more)")
_PLAN = re.compile(r"\n[^\n]*\n[:+]- .*\Z", re.DOTALL)
_NOT_TELLING = (_CALLED, _BEHIND, _PLACES, _PLAN)
"""What Spark adds to a message: the call that failed, places in Java's code, the query's plan."""

TRACEBACK = "Traceback (most recent call last):\n"


@dataclass(frozen=True, slots=True)
class AttemptError:
    """Why one attempt failed, who made it, and when."""

    attempt: int
    type: str
    message: str
    traceback: str
    worker: str | None
    at_ms: int


def describe(error: BaseException, *, attempt: int, worker: str | None, at_ms: int) -> AttemptError:
    """An exception in a form fit for keeping, without the megabytes that a JVM may attach."""
    trace = "".join(tracebacks.format_exception(error, chain=False))
    return AttemptError(
        attempt=attempt,
        type=type(error).__name__,
        message=_shortened(message_of(error), MESSAGE_LIMIT),
        traceback=_shortened(trace, TRACEBACK_LIMIT),
        worker=worker,
        at_ms=at_ms,
    )


def fingerprint(error: AttemptError) -> str:
    """The same for errors that differ only in ids, numbers and quoted values."""
    normal = f"{error.type}: {_VARYING.sub('?', _telling_line(error.message))}"
    return hashlib.sha256(normal.encode("utf-8", "replace")).hexdigest()[:12]


def message_of(error: BaseException) -> str:
    """An error's text, without what Spark and Java add to it."""
    return _without_additions(_said(error))


def is_wordy(error: BaseException) -> bool:
    """Whether an error says more than is kept of it."""
    said = _said(error)
    return _without_additions(said) != said


def _said(error: BaseException) -> str:
    """An error's text; asking for it may fail, as when it lies in a Java process that is gone."""
    try:
        return str(error).strip()
    except Exception as unreadable:  # noqa: BLE001  (whatever it is, the error must be kept)
        return f"(its message cannot be read: {type(unreadable).__name__})"


def _without_additions(message: str) -> str:
    for added in _NOT_TELLING:
        message = added.sub("", message)
    return message.strip()


def _telling_line(message: str) -> str:
    """The first line; if that only leads to the traceback of another process, what it ends with."""
    _, found, trace = message.rpartition(TRACEBACK)
    lines = [line for line in trace.splitlines() if found and line and not line[0].isspace()]
    return lines[0] if lines else message.split("\n", 1)[0]


def _shortened(text: str, limit: int) -> str:
    """Head and tail of a text, as the cause stands at one of the two ends."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"
