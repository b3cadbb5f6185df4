"""Events of a MongoDB store as Arrow tables, for Spark's executors."""

import pyarrow as pa

from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.stores.arrow import ENVELOPE
from dagster_bus.stores.mongo.connection import MongoConnection
from dagster_bus.stores.mongo.documents import attributes_text, partition_id
from dagster_bus.stores.mongo.reading import Page, pages


def read_table(url: str, span: OffsetRange) -> tuple[pa.Table, int]:
    """The events of a range, and up to where compaction may have taken some out.

    That is asked last: what is missing among the events, it accounts for by then."""
    at = TopicPartition(span.topic, span.partition)
    with MongoConnection(url, create=False) as connection:
        batches = [_batch(page) for page in pages(connection, span)]
        with connection.reading() as session:
            counters = connection.database["counters"]
            counter = counters.find_one({"_id": partition_id(at)}, session=session)
    return pa.Table.from_batches(batches, ENVELOPE), counter["compactedTo"] if counter else 0


def _batch(page: Page) -> pa.RecordBatch:
    columns = {name: [event.get(name) for event in page] for name in ENVELOPE.names}
    columns["ts"] = [event["ts"] * 1_000 for event in page]
    columns["attributes"] = [attributes_text(event.get("headers")) for event in page]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in ENVELOPE], schema=ENVELOPE
    )
