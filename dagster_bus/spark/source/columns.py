"""The columns of events: the envelope's, or those of the payload with the envelope in `_event`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import UsageError
from dagster_bus.schemas import columns as schema_columns
from dagster_bus.schemas.tree import quoted
from dagster_bus.spark.source.filters import EVENT
from dagster_bus.spark.source.values import Payloads
from dagster_bus.spec.hints import hint

ENVELOPE = {
    "id": "string",
    "ts": "timestamp",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "key": "string",
    "source": "string",
    "schema_version": "int",
    "attributes": "string",
    "priority": "int",
    "payload": "string",
}
EVENT_TYPE = f"struct<{','.join(f'{name}:{type_}' for name, type_ in ENVELOPE.items())}>"


def typed_columns(topics: Iterable[TopicConfig]) -> dict[str, str]:
    """The columns that topics declare, and `_event`. Raises UsageError if they do not go together
    or there are none."""
    found: dict[str, tuple[str, str, str]] = {EVENT: (EVENT, "the envelope", EVENT_TYPE)}
    for topic in topics:
        if topic.schema is None:
            raise UsageError(
                f"option typed: {topic.name} declares no schema; read it without typed, or give it "
                "a schema in its topics.yaml"
            )
        for name, type_ in schema_columns(topic.schema.versions[topic.schema.current]).items():
            first = found.setdefault(name.lower(), (name, topic.name, type_))
            if (name, type_) != (first[0], first[2]):
                raise UsageError(
                    f"option typed: column {first[0]!r} is {first[2]} in {first[1]}, and {name!r} "
                    f"is {type_} in {topic.name}; a column has one name and type, so read these "
                    "topics one by one"
                )
    envelope = found.pop(EVENT)
    return {name: type_ for name, _, type_ in found.values()} | {EVENT: envelope[2]}


def ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())


@dataclass(frozen=True, slots=True)
class Shape:
    """How batches of events become rows of the columns that a query has."""

    wanted: StructType
    types: Mapping[str, str]
    """All columns that there are, in Spark's DDL."""

    def __post_init__(self) -> None:
        for field in self.wanted.fields:
            type_ = self.types.get(field.name)
            if type_ is None:
                raise UsageError(
                    f"the schema has a column {field.name!r}, and events have none"
                    f"{hint(field.name, self.types)}"
                )
            found = field.dataType.simpleString()
            if found != type_.replace("`", ""):
                raise UsageError(f"column {field.name!r} is {type_}, and {found} in the schema")

    @property
    def is_typed(self) -> bool:
        return EVENT in self.types

    @property
    def needed(self) -> Sequence[str]:
        """The envelope's columns that must be read."""
        names = [field.name for field in self.wanted.fields]
        if not self.is_typed:
            return names
        return list(ENVELOPE) if EVENT in names else ["payload"]

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        schema = to_arrow_schema(self.wanted, timezone="UTC")
        payload = {name: type_ for name, type_ in self.types.items() if name in schema.names}
        payload.pop(EVENT, None)
        parsed = Payloads(payload) if self.is_typed else None
        for batch in batches:
            columns: dict[str, Any] = {name: batch[name] for name in batch.schema.names}
            if parsed:
                columns = parsed.columns(batch["payload"].to_pylist(), schema)
                if EVENT in schema.names:
                    columns[EVENT] = _struct(batch, schema.field(EVENT).type)
            yield pa.RecordBatch.from_arrays(
                [columns[field.name] for field in schema], schema=schema
            )


def _struct(batch: pa.RecordBatch, type_: Any) -> Any:
    fields = [type_.field(n) for n in range(type_.num_fields)]
    return pa.StructArray.from_arrays([batch[field.name] for field in fields], fields=fields)
