"""Values of the core as documents of a MongoDB store, and back."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.event import Batch, Event, Published, event_from_tuple
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.store import Bounds, DeadLetter, LetterState, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.stores.common import errors_from_text, errors_to_text

Document = dict[str, Any]

NO_ATTRIBUTES = "{}"

RANGES_AT_ONCE = 100


def partition_id(at: TopicPartition) -> str:
    """Names a partition, and nothing else: there is no colon in a topic's name."""
    return f"{at.topic}:{at.partition}"


def partition_of(document: Document) -> TopicPartition:
    return TopicPartition(document["topic"], document["partition"])


def at_places(span: OffsetRange, within: str = "") -> Document:
    """Asks for the events of a range; `within` is where they stand in a document, with a dot."""
    return {
        f"{within}topic": span.topic,
        f"{within}partition": span.partition,
        f"{within}offset": {"$gte": span.first, "$lte": span.last},
    }


def some_at_once(spans: Sequence[OffsetRange]) -> Iterator[Sequence[OffsetRange]]:
    """Ranges in their order, as many at a time as are asked for in one query."""
    ordered = sorted(spans)
    for at in range(0, len(ordered), RANGES_AT_ONCE):
        yield ordered[at : at + RANGES_AT_ONCE]


def events_to_documents(
    batch: Batch, offsets: Iterable[int], times: Iterable[int], starts: Iterable[int]
) -> list[Document]:
    """A batch whose events have their places, as one document for each."""
    topic = batch.topic
    documents: list[Document] = [
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "ts": ts,
            "id": id,
            "schema_version": version,
            "priority": priority,
            "payload": payload,
            "bytes": start,
        }
        for partition, offset, ts, id, version, priority, payload, start in zip(
            batch.partitions,
            offsets,
            times,
            batch.ids,
            batch.schema_versions,
            batch.priorities,
            batch.payloads,
            starts,
            strict=True,
        )
    ]
    for name, column in (
        ("key", batch.keys),
        ("source", batch.sources),
        ("headers", _headers(batch.attributes)),
        ("idempotency_key", batch.idempotency_keys),
        ("ttl_s", batch.ttls),
        ("payload_sha256", batch.payload_sha256s),
    ):
        _add_column(documents, name, column)
    return documents


def _add_column(documents: Sequence[Document], name: str, column: Sequence[Any]) -> None:
    if column.count(None) == len(column):
        return
    for document, value in zip(documents, column, strict=True):
        if value is not None:
            document[name] = value


def _headers(attributes: Sequence[str]) -> Sequence[Document | str | None]:
    if attributes.count(NO_ATTRIBUTES) == len(attributes):
        return [None] * len(attributes)
    return [None if text == NO_ATTRIBUTES else _header(text) for text in attributes]


def _header(attributes: str) -> Document | str:
    """Attributes as a document; as text if names begin with a dollar sign, which may mean something
    else in a document."""
    if '"$' in attributes:
        return attributes
    document: Document = orjson.loads(attributes)
    return document


def event_from_document(document: Document) -> Event:
    get = document.get
    headers = get("headers")
    event: Event = event_from_tuple(
        (
            document["id"],
            document["ts"],
            document["topic"],
            document["partition"],
            document["offset"],
            get("key"),
            get("source"),
            document["schema_version"],
            NO_ATTRIBUTES if headers is None else attributes_text(headers),
            document["priority"],
            get("idempotency_key"),
            get("ttl_s"),
            document["payload"],
            get("payload_sha256"),
        )
    )
    return event


def attributes_text(headers: Document | str | None) -> str:
    """An event's attributes as JSON text, as they were given."""
    if headers is None:
        return NO_ATTRIBUTES
    return headers if isinstance(headers, str) else orjson.dumps(headers).decode()


def bounds_from_document(counter: Document) -> Bounds:
    return Bounds(
        first=counter["firstOffset"],
        end=counter["nextOffset"],
        last_ts=counter["lastTs"],
        appended_bytes=counter["appendedBytes"],
        compacted_to=counter["compactedTo"],
    )


def new_counter(at: TopicPartition) -> Document:
    return {
        "_id": partition_id(at),
        "topic": at.topic,
        "partition": at.partition,
        "nextOffset": 1,
        "lastTs": 0,
        "appendedBytes": 0,
        "firstOffset": 1,
        "compactedTo": 0,
    }


def published_from_note(topic: str, note: Document) -> Published:
    return Published(topic, note["partition"], note["offset"], note["id"], note["ts"])


def tally_from_document(group: Document | None) -> Tally:
    if group is None:
        return Tally()
    return Tally(
        processed=group.get("processed", 0),
        filtered=group.get("filtered", 0),
        dead_lettered=group.get("deadLettered", 0),
        expired=group.get("expired", 0),
    )


def breaker_from_document(group: Document | None) -> Breaker:
    if group is None:
        return Breaker()
    return Breaker(group.get("failures", 0), group.get("pausedUntilMs", 0))


def delivery_to_document(delivery: Delivery) -> Document:
    return {
        "_id": delivery.id,
        "group": delivery.group,
        "window": delivery.window,
        "ranges": _ranges_to_list(delivery.ranges),
        "size": delivery.size,
        "state": delivery.state.value,
        "outcome": delivery.outcome.value if delivery.outcome else None,
        "attempt": delivery.attempt,
        "reservation": delivery.reservation,
        "token": delivery.token,
        "dueMs": delivery.due_ms,
        "worker": delivery.worker,
        "errors": errors_to_text(delivery.errors),
        "createdMs": delivery.created_ms,
        "exhausted": delivery.exhausted,
        "redriven": delivery.redriven,
        "behind": _ranges_to_list(delivery.behind),
        "doubtful": delivery.doubtful,
        "looks": delivery.looks,
        "version": delivery.version,
    }


def _ranges_to_list(ranges: Iterable[OffsetRange]) -> list[list[str | int]]:
    return [[part.topic, part.partition, part.first, part.last] for part in ranges]


def ranges_of(delivery: Document) -> tuple[OffsetRange, ...]:
    return _ranges_from_list(delivery["ranges"])


def _ranges_from_list(ranges: Iterable[list[Any]]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(*part) for part in ranges)


def delivery_from_document(document: Document) -> Delivery:
    outcome = document["outcome"]
    return Delivery(
        id=document["_id"],
        group=document["group"],
        window=document["window"],
        ranges=ranges_of(document),
        state=State(document["state"]),
        outcome=Outcome(outcome) if outcome else None,
        attempt=document["attempt"],
        reservation=document["reservation"],
        token=document["token"],
        due_ms=document["dueMs"],
        worker=document["worker"],
        errors=errors_from_text(document["errors"]),
        created_ms=document["createdMs"],
        exhausted=document.get("exhausted", False),
        redriven=document.get("redriven", False),
        behind=_ranges_from_list(document.get("behind", ())),
        doubtful=document.get("doubtful", True),
        looks=document.get("looks", 0),
        version=document["version"],
    )


def dead_letter_from_document(document: Document, errors: tuple[AttemptError, ...]) -> DeadLetter:
    return DeadLetter(
        id=document["_id"],
        group=document["group"],
        delivery=document["delivery"],
        event=event_from_document(document["event"]),
        errors=errors,
        fingerprint=document["fingerprint"],
        died_ms=document["diedMs"],
        state=LetterState(document["state"]),
        patched=document.get("patched"),
    )
