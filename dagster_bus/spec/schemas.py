"""The schemas of topics as declared, with the documents that they name.

JSON Schema files are read and checked here. Models are not imported: that is for whoever needs
them, as importing runs code.
"""

from collections.abc import Iterator
from pathlib import Path

from dagster_bus import schemas
from dagster_bus.core.topic import SchemaConfig, SchemaVersion, matching
from dagster_bus.errors import Problem, UsageError
from dagster_bus.spec.files import read_json
from dagster_bus.spec.hints import Path as Place
from dagster_bus.spec.hints import dotted
from dagster_bus.spec.models import BusSpec
from dagster_bus.spec.source import Source
from dagster_bus.spec.topics import SchemaSpec, SchemaVersionSpec


class SchemaReader:
    """Collects the schemas of a file, and what is wrong with the documents they name."""

    def __init__(self, spec: BusSpec, folder: Path, source: Source) -> None:
        self._spec = spec
        self._folder = folder
        self._source = source
        self.problems: list[Problem] = []

    def read(self) -> dict[str, SchemaConfig]:
        """Schemas by topic. One whose document cannot be used lacks that version."""
        return {
            name: self._schema(name, topic.schema_)
            for name, topic in self._spec.topics.items()
            if topic.schema_ is not None
        }

    def _schema(self, topic: str, schema: SchemaSpec) -> SchemaConfig:
        place: Place = ("topics", topic, "schema")
        written = {schema.version: (place, schema)} | {
            number: ((*place, "versions", str(number)), version)
            for number, version in schema.versions.items()
        }
        versions = {
            number: version
            for number, (where, declared) in written.items()
            for version in self._version(where, number, declared)
        }
        return SchemaConfig(versions, schema.version, strict=is_strict(self._spec, topic))

    def _version(
        self, place: Place, number: int, schema: SchemaVersionSpec
    ) -> Iterator[SchemaVersion]:
        if schema.fields is not None:
            yield SchemaVersion("fields", schema.fields)
        elif schema.model is not None:
            yield SchemaVersion("model", schema.model)
        elif schema.json_schema is not None:
            place = (*place, "json_schema")
            try:
                version = SchemaVersion("json_schema", read_json(self._folder / schema.json_schema))
                schemas.compile_schema(SchemaConfig({number: version}, number))
                schemas.columns(version)
            except (UsageError, ValueError) as error:
                self.problems.append(self._source.problem(place, f"{dotted(place)}: {error}"))
            else:
                yield version


def is_strict(spec: BusSpec, topic: str) -> bool:
    """Whether a topic refuses what does not fit its schema; its own word comes first."""
    schema = spec.topics[topic].schema_
    if schema is not None and schema.mode is not None:
        return schema.mode == "strict"
    return any(matching(pattern, [topic]) for pattern in spec.strict_topics)
