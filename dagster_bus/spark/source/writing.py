"""DataFrames as events: each task publishes its rows in batches, and nothing twice.

The log is only ever appended to, so there is nothing to take back when a job fails: what was
published stays, and is recognised by its idempotency key when the same rows come again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Message
from dagster_bus.errors import UsageError
from dagster_bus.schemas import compile_schema
from dagster_bus.spark.source.identity import (
    Hashes,
    Numbering,
    digest,
    hashes_of,
    require_apart,
)
from dagster_bus.spark.source.options import Options
from dagster_bus.spark.source.rows import FIELDS, Layout, layout, messages, said
from dagster_bus.stores import open_store

if TYPE_CHECKING:
    import pyarrow as pa

WRITING = ("store", "config", "topic", "writeId", "source", *FIELDS.values())
STREAM_WRITING = (*WRITING, "checkpointLocation", "queryName")

BATCH_ROWS = 1_000
BATCH_BYTES = 4 << 20
"""Rows that are published together: so many, of about so many bytes."""

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells tasks which stream they belong to. The query's id is that of its checkpoint."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and how."""

    store: str
    topic: str
    columns: Layout
    write_id: str | None
    """What is the same whenever the same rows are written; none if the user gave none."""
    source: str | None


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What became of a task's rows."""

    published: int
    repeated: int
    """They had been published before."""
    hashes: bytes = b""
    """Of the rows, eight bytes each, if they must be told apart from those of other tasks."""


def target(options: Options, schema: StructType, overwrite: bool, known: Iterable[str]) -> Target:
    options.require_known(known, {})
    if overwrite:
        raise UsageError('a log is only appended to: write with .mode("append")')
    return Target(
        store=options.store(),
        topic=options.required("topic", "the topic to publish to"),
        columns=layout(schema, options),
        write_id=options.text("writeId", "") or None,
        source=options.text("source", "") or None,
    )


class BusWriter(DataSourceArrowWriter):
    def __init__(self, to: Target) -> None:
        self._target = to
        self._run = uuid4().hex
        """The same for all tasks of the job, and all their attempts."""

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        if self._target.write_id is not None:
            return publish(self._target, iterator, self._target.write_id)
        task = _task().partitionId()
        return publish(self._target, iterator, f"{self._run}/{task}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._target.write_id is not None:
            require_apart(_hashes(messages))


class BusStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, to: Target) -> None:
        self._target = to

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        query = _task().getLocalProperty(QUERY_ID)
        batch = _task().getLocalProperty(BATCH_ID)
        if not query or batch is None:
            raise UsageError(f"Spark does not say which batch this is ({QUERY_ID}, {BATCH_ID})")
        stream = replace(self._target, write_id=self._target.write_id or query)
        return publish(stream, iterator, f"{stream.write_id}/{batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        require_apart(_hashes(messages))


def publish(to: Target, batches: Iterable["pa.RecordBatch"], identity: str) -> Written:
    """Publish rows in batches. Rows without an idempotency key of their own get one that is made
    from an identity and from what they say."""
    numbering = Numbering()
    published = repeated = 0
    with _open_bus(to) as bus:
        done = 0
        for part in _portions(to, batches):
            try:
                places = bus.publish_many(to.topic, _identified(part, to, identity, numbering))
            except UsageError as error:
                raise _with_row(error, done, len(part)) from None
            done += len(part)
            fresh = sum(not place.duplicate for place in places)
            published += fresh
            repeated += len(part) - fresh
    hashes = numbering.distinct().tobytes() if to.write_id is not None else b""
    return Written(published, repeated, hashes)


def _open_bus(to: Target) -> Bus:
    store = open_store(to.store, create=False)
    try:
        topics = store.topics()
        config = next((topic for topic in topics if topic.name == to.topic), None)
        if config is not None and to.write_id is not None and not config.dedup_ms:
            raise UsageError(
                f"{to.topic} does not recognise repeated events (dedup.window is 0), so that rows "
                "could be published twice: give it a window, or write without writeId and stream"
            )
        bus = Bus(store, topics, None, compile_schema=compile_schema)
        bus.select(to.topic)
        return bus
    except BaseException:
        store.close()
        raise


def _portions(to: Target, batches: Iterable["pa.RecordBatch"]) -> Iterator[list[Message]]:
    """Messages of bounded size together."""
    done = 0
    for batch in batches:
        rows = min(BATCH_ROWS, max(BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1), 1))
        for start in range(0, batch.num_rows, rows):
            part: list[Message] = []
            try:
                for message in messages(batch.slice(start, rows), to.columns, to.source):
                    part.append(message)  # noqa: PERF402  (so that a mistake tells its row)
            except UsageError as error:
                raise type(error)(f"row {done + len(part) + 1} of its task: {error}") from None
            yield part
            done += len(part)


def _identified(
    part: list[Message], to: Target, identity: str, numbering: Numbering
) -> list[Message]:
    places = [place for place, message in enumerate(part) if message.idempotency_key is None]
    if not places:
        return part
    digests = []
    for place in places:
        try:
            digests.append(digest(to.topic, *said(part[place])))
        except UsageError as error:
            raise error.of_message(place, len(part)) from None
    numbers = numbering.numbers(hashes_of(digests)).tolist()
    for place, known_by, number in zip(places, digests, numbers, strict=True):
        key = f"{identity}/{known_by.hex()}/{number}"
        part[place] = part[place]._replace(idempotency_key=key)
    return part


def _with_row(error: UsageError, before: int, size: int) -> UsageError:
    if error.index is None:
        return type(error)(f"row {before + 1} of its task: {error}") if size == 1 else error
    return type(error)(f"row {before + error.index + 1} of its task: {error.reason}")


def _hashes(messages: Iterable[WriterCommitMessage | None]) -> list[Hashes]:
    import numpy as np

    return [
        np.frombuffer(message.hashes, dtype=np.uint64)
        for message in messages
        if isinstance(message, Written)
    ]


def _task() -> Any:
    return TaskContext.get()
