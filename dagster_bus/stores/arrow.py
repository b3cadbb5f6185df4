"""Events as Arrow batches, for readers that move many of them, such as Spark's executors.

The embedded store is read through ADBC, whose driver has a SQLite library of its own. Two such
libraries must not have one file open in the same process (closing it in one drops the locks of the
other), so this is for processes that do not open the store in any other way.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from dagster_bus.core.event import Event
from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.errors import StoreError
from dagster_bus.stores import is_mongo, sqlite_path
from dagster_bus.stores.sqlite.connection import load_queries

MAX_BATCH = 32_768
"""The driver guesses a column's type from the first batch of a result, so a result must be one
batch: a text column that begins with that many NULLs would be taken for numbers."""

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


def read_batches(url: str, span: OffsetRange, wanted: EventFilter) -> Iterator[pa.RecordBatch]:
    """The events of a piece that pass a filter, in order."""
    table, compacted_to = _read_mongo(url, span) if is_mongo(url) else _read_sqlite(url, span)
    _require_complete(table, span, compacted_to)
    if wanted:
        pairs = zip(table["attributes"].to_pylist(), table["key"].to_pylist(), strict=True)
        passes = [wanted.matches(json.loads(text), key) for text, key in pairs]
        table = table.filter(pa.array(passes, pa.bool_()))
    yield from table.to_batches()


def to_table(events: Iterable[Event]) -> pa.Table:
    """Events that are at hand, in the envelope's columns."""
    rows = [event._asdict() for event in events]
    columns = {name: [row.get(name) for row in rows] for name in ENVELOPE.names}
    columns["ts"] = [row["ts"] * 1_000 for row in rows]
    columns["attributes"] = [row["attributes_json"] for row in rows]
    columns["payload"] = [row["payload_json"] for row in rows]
    return pa.table(columns, schema=ENVELOPE)


def _require_complete(table: pa.Table, span: OffsetRange, compacted_to: int) -> None:
    """Compaction takes events out up to where it has looked; from there on all must be there."""
    first = max(span.first, compacted_to + 1)
    expected = max(span.last - first + 1, 0)
    found = pc.sum(pc.greater_equal(table["offset"], first)).as_py() or 0
    if found != expected:
        raise StoreError(
            f"{span} has {found} of its {expected} events in the store; what is not there must "
            "not be counted as processed"
        )


def _read_mongo(url: str, span: OffsetRange) -> tuple[pa.Table, int]:
    from dagster_bus.stores.mongo.arrow import read_table

    return read_table(url, span)


def _read_sqlite(url: str, span: OffsetRange) -> tuple[pa.Table, int]:
    import adbc_driver_sqlite.dbapi as adbc  # half a second, which planning can do without
    from adbc_driver_sqlite import StatementOptions

    path = f"file:{quote(sqlite_path(url))}?mode=ro"
    at = (span.topic, span.partition)
    with adbc.connect(path) as connection, connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 30000")
        cursor.adbc_statement.set_options(**{StatementOptions.BATCH_ROWS.value: str(MAX_BATCH)})
        cursor.execute(load_queries()["read_events_arrow"], (*at, span.first, span.last))
        table = cursor.fetch_arrow_table()
        # Asked last: what compaction took out before the events were read, it says by now.
        cursor.execute(load_queries()["compacted_to"], at)
        compacted_to = cursor.fetchone()
    return _enveloped(table, span), compacted_to[0] if compacted_to else 0


def _enveloped(table: pa.Table, span: OffsetRange) -> pa.Table:
    """A result with the envelope's names and types."""
    size = table.num_rows
    columns = {name: table[name] for name in table.column_names}
    columns["ts"] = pc.multiply(columns["ts"], 1_000)
    columns["topic"] = pa.array([span.topic] * size, pa.string())
    columns["partition"] = pa.array([span.partition] * size, pa.int32())
    return pa.table(
        [pc.cast(columns[field.name], field.type) for field in ENVELOPE], schema=ENVELOPE
    )
