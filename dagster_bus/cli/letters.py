"""Dead letters as rows, as JSON, and as stories for people."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from textwrap import indent
from typing import Any

from dagster_bus.cli.output import as_second, as_time, in_line, printable
from dagster_bus.core.event import PRIORITIES, Event
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.store import DeadLetter


def row_of(letter: DeadLetter, *, with_state: bool) -> dict[str, Any]:
    """A letter in a line of a table."""
    return {
        "id": letter.id,
        "died": as_second(letter.died_ms),
        "event": _place(letter.event),
        "attempts": len(letter.errors),
        "fingerprint": letter.fingerprint,
        **({"state": letter.state.value} if with_state else {}),
        "error": error_in_line(letter),
    }


def error_in_line(letter: DeadLetter) -> str:
    """The error that a letter died of."""
    last = letter.errors[-1]
    return in_line(f"{last.type}: {last.message}")


def as_data(letter: DeadLetter) -> dict[str, Any]:
    """A letter with all that is known of it, for programs."""
    event = letter.event._asdict()
    del event["payload_json"], event["attributes_json"]
    return {
        "id": letter.id,
        "group": letter.group,
        "delivery": letter.delivery,
        "state": letter.state.value,
        "fingerprint": letter.fingerprint,
        "died_ms": letter.died_ms,
        "event": {**event, "attributes": letter.event.attributes, "payload": letter.event.payload},
        "patched": None if letter.patched is None else {"payload": json.loads(letter.patched)},
        "errors": [asdict(error) for error in letter.errors],
    }


def story_of(letter: DeadLetter) -> str:
    """A letter with all that is known of it, for people."""
    return printable("\n".join(_paragraphs(letter)))


def _paragraphs(letter: DeadLetter) -> Iterator[str]:
    told = {
        "letter": f"{letter.id} of {letter.group}",
        "died": as_time(letter.died_ms),
        "state": letter.state.value,
        "fingerprint": letter.fingerprint,
        "delivery": letter.delivery,
        "event": _place(letter.event),
        **_envelope(letter.event),
    }
    width = max(map(len, told))
    yield from (f"{name:{width}}  {value}" for name, value in told.items())
    yield f"payload\n{_indented(letter.event.payload_json)}"
    if letter.patched is not None:
        yield f"sent back with the payload\n{_indented(letter.patched)}"
    for error in letter.errors:
        yield f"\n{_attempt(error)}"


def _envelope(event: Event) -> dict[str, Any]:
    """What stands around a payload, as far as there is something to say."""
    optional = {
        "key": event.key,
        "source": event.source,
        "attributes": event.attributes_json if event.attributes_json != "{}" else None,
        "ttl": None if event.ttl_s is None else f"{event.ttl_s}s",
        "idempotency key": event.idempotency_key,
        "sha256": event.payload_sha256,
    }
    return {
        "event id": event.id,
        "published": as_time(event.ts),
        "priority": PRIORITIES[event.priority],
        "schema version": event.schema_version,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _attempt(error: AttemptError) -> str:
    worker = f" by {error.worker}" if error.worker else ""
    head = f"attempt {error.attempt}, {as_time(error.at_ms)}{worker}"
    message = indent(f"{error.type}: {error.message}", "  ")
    return f"{head}\n{message}\n{indent(error.traceback.rstrip(), '    ')}"


def _indented(text: str) -> str:
    return indent(json.dumps(json.loads(text), ensure_ascii=False, indent=2), "  ")


def _place(event: Event) -> str:
    return f"{event.topic}/{event.partition}:{event.offset}"
