"""Events of a MongoDB store as Arrow batches, for Spark's executors."""

from collections.abc import Collection, Iterator
from dataclasses import replace

import pyarrow as pa

from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import OffsetTrimmed
from dagster_bus.stores.arrow import ENVELOPE, require_complete
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import NO_ATTRIBUTES, attributes_text, partition_id
from dagster_bus.stores.mongo.reading import Page, pages

FIELDS = {name: name for name in ENVELOPE.names} | {"attributes": "headers"}
"""Where a document has each column."""


def read_pages(
    url: str, span: OffsetRange, columns: Collection[str], *, complete: bool
) -> Iterator[pa.RecordBatch]:
    """The events of a range, some at a time. Whether all are there is asked when they were read:
    what is missing among them, compaction accounts for by then."""
    fields = {FIELDS[name] for name in columns}
    offsets: list[pa.Array] = []
    with MongoConnection(url, create=False) as connection:
        begin = span.first
        while begin <= span.last:
            try:
                for page in pages(connection, replace(span, first=begin), fields=fields):
                    batch = _batch(page, span)
                    offsets.append(batch["offset"])
                    begin = page[-1]["offset"] + 1
                    yield batch
                break
            except OffsetTrimmed as error:
                if complete:
                    raise
                begin = error.first
        if complete:
            _require_complete(connection, offsets, span)


def _require_complete(
    connection: MongoConnection, offsets: list[pa.Array], span: OffsetRange
) -> None:
    at = TopicPartition(span.topic, span.partition)
    with connection.reading() as session:
        counters = connection.database["counters"]
        counter = counters.find_one({"_id": partition_id(at)}, session=session) or {}
    first, compacted_to = counter.get("firstOffset", 0), counter.get("compactedTo", 0)
    require_complete(offsets, span, first, compacted_to)


def _batch(page: Page, span: OffsetRange) -> pa.RecordBatch:
    size = len(page)
    columns = {name: [event.get(name) for event in page] for name in _AS_THEY_ARE}
    columns["ts"] = [event["ts"] * 1_000 for event in page]
    columns["topic"] = [span.topic] * size
    columns["partition"] = [span.partition] * size
    columns["attributes"] = [
        attributes_text(headers) if (headers := event.get("headers")) else NO_ATTRIBUTES
        for event in page
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in ENVELOPE], schema=ENVELOPE
    )


_AS_THEY_ARE = set(ENVELOPE.names) - {"ts", "topic", "partition", "attributes"}
