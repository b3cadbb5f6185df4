"""A checked file, and what can be asked of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dagster_bus.core.topic import SchemaConfig, matching
from dagster_bus.errors import Problem, SpecError, UsageError
from dagster_bus.schemas import columns
from dagster_bus.spec.hints import Path as Place
from dagster_bus.spec.hints import dotted
from dagster_bus.spec.models import BusSpec
from dagster_bus.spec.source import Source
from dagster_bus.spec.system import system_topics


class LoadedSpec:
    """A checked file: its specs, its folder, and the places of its values."""

    def __init__(
        self, spec: BusSpec, folder: Path, source: Source, schemas: Mapping[str, SchemaConfig]
    ) -> None:
        self.spec = spec
        self.topics = {**spec.topics, **system_topics(spec.system)}
        """The declared topics, and those on which the bus is to tell of itself."""
        self.folder = folder
        self.schemas = schemas
        """What payloads look like, by topic; documents are read, models not yet imported."""
        self._source = source
        self._order = {name: place for place, name in enumerate(self.topics)}
        self._topics_of: dict[str, tuple[str, ...]] = {}
        self._columns: dict[str, dict[str, str]] = {}

    def topics_of(self, group: str) -> tuple[str, ...]:
        """The topics that a group's patterns select, in the file's order. A pattern never
        means the topic that the group itself publishes to: it would read what it wrote."""
        if (known := self._topics_of.get(group)) is None:
            known = self._topics_of[group] = self._select(group)
        return known

    def _select(self, group: str) -> tuple[str, ...]:
        spec = self.spec.groups[group]
        chosen = {name for pattern in spec.topics for name in matching(pattern, self.topics)}
        if spec.publish not in spec.topics:
            chosen.discard(spec.publish or "")
        return tuple(sorted(chosen, key=self._order.__getitem__))

    def columns_of_topic(self, topic: str) -> Mapping[str, str]:
        """The payload columns of a topic. Raises SpecError if they come from a model that cannot be
        used."""
        if (known := self._columns.get(topic)) is None:
            known = self._columns[topic] = self._columns_in(topic)
        return known

    def _columns_in(self, topic: str) -> dict[str, str]:
        schema = self.schemas.get(topic)
        if schema is None:
            return {}
        try:
            return columns(schema.versions[schema.current])
        except (UsageError, ValueError) as error:
            place = ("topics", topic, "schema")
            raise SpecError([self.problem(place, f"{dotted(place)}: {error}")]) from None

    def columns_of(self, group: str) -> dict[str, str]:
        """The payload columns of a group's topics together. Raises SpecError if they disagree, or
        come from a model that cannot be used."""
        by_topic = {topic: self.columns_of_topic(topic) for topic in self.topics_of(group)}
        if problems := list(self.conflicting_columns(group, by_topic)):
            raise SpecError(problems)
        return {name: type_ for each in by_topic.values() for name, type_ in each.items()}

    def conflicting_columns(
        self, group: str, by_topic: Mapping[str, Mapping[str, str]]
    ) -> Iterator[Problem]:
        """Columns that one table cannot have together."""
        place = ("groups", group, "topics")
        seen: dict[str, tuple[str, str, str]] = {"_event": ("_event", "the envelope", "struct")}
        for topic, declared in by_topic.items():
            for column, type_ in declared.items():
                first = seen.setdefault(column.lower(), (column, topic, type_))
                name, first_topic, first_type = first
                if name != column:
                    yield self.problem(
                        place,
                        f"{dotted(place)}: column {name!r} of {first_topic} and {column!r} of "
                        f"{topic} are the same to Spark (rename one)",
                    )
                elif first_type != type_:
                    yield self.problem(
                        place,
                        f"{dotted(place)}: column {column!r} is {first_type} in {first_topic} and "
                        f"{type_} in {topic} (a column has one type)",
                    )

    def table_path(self, group: str) -> str:
        """Where a group's table lies; a relative path counts from the file's folder."""
        table = self.spec.groups[group].table
        if table is None:
            raise UsageError(f"group {group!r} has no table")
        return table.path if "://" in table.path else str(self.folder / table.path)

    def problem(self, path: Place, message: str) -> Problem:
        """A mistake that only a later step can find, at its place in the file."""
        return self._source.problem(path, message)

    def has_all_topics(self) -> bool:
        """Whether every topic of the file can be used; else a pattern may mean one that cannot."""
        return len(self.spec.topics) == len(self.keys("topics"))

    def is_written(self, *path: str | int) -> bool:
        """Whether the file itself has a key, and not only the defaults."""
        return path in self._source.keys

    def keys(self, *path: str | int) -> list[str]:
        """The keys that the file has at a path, those that cannot be used included."""
        data = self._source.data
        for part in path:
            data = data.get(part) if isinstance(data, dict) else None
        return list(data) if isinstance(data, dict) else []
