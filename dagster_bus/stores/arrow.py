"""Events as Arrow batches, for readers that move many of them, such as Spark's executors.

The embedded store is read through ADBC, whose driver has a SQLite library of its own. Two such
libraries must not have one file open in the same process (closing it in one drops the locks of the
other), so this is for processes that do not open the store in any other way at the same time; the
file is closed again before a batch is handed on.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dagster_bus.core.event import Event
from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.errors import OffsetTrimmed, StoreError
from dagster_bus.stores import is_mongo, sqlite_path
from dagster_bus.stores.sqlite.connection import load_queries

if TYPE_CHECKING:
    from dagster_bus.stores.adbc import ArrowReader

MAX_BATCH = 32_768
"""The driver guesses a column's type from the first batch of a result, so a result must be one
batch: a text column that begins with that many NULLs would be taken for numbers."""

MAX_BATCH_BYTES = 16 << 20
"""What the events of one batch may come to, unless a single one is larger."""

ENVELOPE = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("source", pa.string()),
        ("schema_version", pa.int32()),
        ("attributes", pa.string()),
        ("priority", pa.int32()),
        ("payload", pa.string()),
    ]
)


def pieces(ranges: Sequence[OffsetRange], most: int = MAX_BATCH) -> list[OffsetRange]:
    """The same events in ranges small enough to be read at once, and in parallel."""
    return [
        OffsetRange(span.topic, span.partition, first, min(first + most - 1, span.last))
        for span in ranges
        for first in range(span.first, span.last + 1, most)
    ]


def read_batches(
    url: str,
    span: OffsetRange,
    wanted: EventFilter,
    columns: Collection[str] = ENVELOPE.names,
    *,
    complete: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The events of a range that pass a filter, in order, in batches of bounded size.

    Columns that are not asked for may be null. Events that should be there and are not are an
    error, unless it need not be complete; OffsetTrimmed if retention has taken them."""
    needed = {*columns, *(("attributes", "key") if wanted else ())}
    read = _read_mongo if is_mongo(url) else _read_sqlite
    for batch in read(url, span, needed, complete):
        if not wanted:
            yield batch
            continue
        pairs = zip(batch["attributes"].to_pylist(), batch["key"].to_pylist(), strict=True)
        passes = [wanted.matches(json.loads(text), key) for text, key in pairs]
        if any(passes):
            yield batch.filter(pa.array(passes, pa.bool_()))


def to_table(events: Iterable[Event]) -> pa.Table:
    """Events that are at hand, in the envelope's columns."""
    rows = [event._asdict() for event in events]
    columns = {name: [row.get(name) for row in rows] for name in ENVELOPE.names}
    columns["ts"] = [row["ts"] * 1_000 for row in rows]
    columns["attributes"] = [row["attributes_json"] for row in rows]
    columns["payload"] = [row["payload_json"] for row in rows]
    return pa.table(columns, schema=ENVELOPE)


def require_complete(
    offsets: Sequence[pa.Array], span: OffsetRange, first_offset: int, compacted_to: int
) -> None:
    """Compaction takes events out up to where it has looked; from there on all must be there."""
    first = max(span.first, compacted_to + 1)
    expected = max(span.last - first + 1, 0)
    found = sum(pc.sum(pc.greater_equal(part, first)).as_py() or 0 for part in offsets)
    if found == expected:
        return
    if span.first < first_offset:
        raise OffsetTrimmed(span.topic, span.partition, span.first, first_offset)
    raise StoreError(
        f"{span} has {found} of its {expected} events in the store; what is not there must "
        "not be counted as processed"
    )


def _read_mongo(
    url: str, span: OffsetRange, columns: Collection[str], complete: bool
) -> Iterator[pa.RecordBatch]:
    from dagster_bus.stores.mongo.arrow import read_pages

    return read_pages(url, span, columns, complete=complete)


def _read_sqlite(
    url: str, span: OffsetRange, columns: Collection[str], complete: bool
) -> Iterator[pa.RecordBatch]:
    from dagster_bus.stores.adbc import reading  # not for those who only plan

    queries = load_queries()
    at = (span.topic, span.partition)
    offsets: list[pa.Array] = []
    first = span.first
    while first <= span.last:
        with reading(sqlite_path(url)) as file:
            last = _last_of_batch(file, queries["bytes_between"], at, first, span.last)
            asked = (*at, first, last, int("payload" in columns))
            found = file.table(queries["read_events_arrow"], *asked, rows=MAX_BATCH)
            batches = _enveloped(found, span).to_batches()
            offsets += [batch["offset"] for batch in batches]
            if complete and last == span.last:
                # Asked last: what is missing among the events, these account for by now.
                beginning = file.row(queries["beginning"], *at) or (0, 0)
                compacted_to = file.row(queries["compacted_to"], *at) or (0,)
                require_complete(offsets, span, beginning[1], compacted_to[0])
        yield from batches
        first = last + 1


def _last_of_batch(
    file: "ArrowReader", bytes_between: str, at: tuple[str, int], first: int, last: int
) -> int:
    """How far a batch goes that begins with an offset. Half as far, for as long as it is too large:
    that takes a look-up each, and most batches one."""
    last = min(last, first + MAX_BATCH - 1)
    while last > first:
        (size,) = file.row(bytes_between, *at, first, last) or (0,)
        if size <= MAX_BATCH_BYTES:
            break
        last = (first + last) // 2
    return last


def _enveloped(table: pa.Table, span: OffsetRange) -> pa.Table:
    """A result with the envelope's names and types."""
    size = table.num_rows
    columns = {name: table[name] for name in table.column_names}
    columns["ts"] = pc.multiply(columns["ts"], 1_000)
    columns["topic"] = pa.repeat(span.topic, size)
    columns["partition"] = pa.repeat(pa.scalar(span.partition, pa.int32()), size)
    return pa.table(
        [pc.cast(columns[field.name], field.type) for field in ENVELOPE], schema=ENVELOPE
    )
