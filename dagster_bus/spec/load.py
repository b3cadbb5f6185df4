"""From the file to checked specs, with every mistake found reported at its place."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dagster_bus.core.topic import matching
from dagster_bus.errors import Problem, SpecError, UsageError
from dagster_bus.spec.models import BusSpec, fields_by_key
from dagster_bus.spec.source import Source, read_source


class LoadedSpec:
    """A checked file: its specs, its folder, and the places of its values."""

    def __init__(self, spec: BusSpec, folder: Path, source: Source) -> None:
        self.spec = spec
        self.folder = folder
        self._source = source

    def topics_of(self, group: str) -> tuple[str, ...]:
        """The declared topics that a group's patterns select, in the file's order."""
        patterns = self.spec.groups[group].topics
        chosen = {name for pattern in patterns for name in matching(pattern, self.spec.topics)}
        return tuple(name for name in self.spec.topics if name in chosen)

    def columns_of(self, group: str) -> dict[str, str]:
        """The payload columns of a group's topics together."""
        columns: dict[str, str] = {}
        for name in self.topics_of(group):
            schema = self.spec.topics[name].schema_
            columns.update(schema.fields if schema else {})
        return columns

    def table_path(self, group: str) -> str:
        """Where a group's table lies; a relative path counts from the file's folder."""
        return str(self.folder / self.spec.groups[group].table.path)

    def problem(self, path: tuple[str | int, ...], message: str) -> Problem:
        """A mistake that only a later step can find, at its place in the file."""
        return self._source.problem(path, message)


def load_spec(path: str | Path, environ: Mapping[str, str] | None = None) -> LoadedSpec:
    """Read and check a file. Raises SpecError listing every mistake found."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror} (dagster-bus -f names another file)"
        ) from None
    except UnicodeDecodeError as error:
        raise SpecError([Problem(file.name, 1, 1, f"not UTF-8 text: {error.reason}")]) from None
    source = read_source(text, file.name, environ)
    try:
        spec = BusSpec.model_validate(source.data)
    except ValidationError as error:
        said = {problem.line for problem in source.problems}  # a value that could not be read
        found = (_explained(source, details) for details in error.errors())
        new = [problem for problem in found if problem.line not in said]
        raise SpecError([*source.problems, *new]) from None
    loaded = LoadedSpec(spec, file.resolve().parent, source)
    problems = [*source.problems, *_cross_check(loaded)]
    if problems:
        raise SpecError(problems)
    return loaded


def _cross_check(loaded: LoadedSpec) -> Iterator[Problem]:
    """Mistakes that show only when one part of the file is held against another."""
    spec = loaded.spec
    for name, group in spec.groups.items():
        for index, pattern in enumerate(group.topics):
            if not matching(pattern, spec.topics):
                yield loaded.problem(
                    ("groups", name, "topics", index),
                    f"no declared topic matches {pattern!r}{_hint(pattern, spec.topics)}",
                )
        if group.retry is not None and group.retry not in spec.retry_policies:
            yield loaded.problem(
                ("groups", name, "retry"),
                f"no retry policy {group.retry!r} is declared"
                + _hint(group.retry, spec.retry_policies),
            )
        yield from _conflicting_columns(loaded, name)


def _conflicting_columns(loaded: LoadedSpec, group: str) -> Iterator[Problem]:
    columns: dict[str, tuple[str, str, str]] = {}
    for topic in loaded.topics_of(group):
        schema = loaded.spec.topics[topic].schema_
        for column, type_ in (schema.fields if schema else {}).items():
            name, first_topic, first_type = columns.setdefault(
                column.lower(), (column, topic, type_)
            )
            if name != column:
                yield loaded.problem(
                    ("groups", group, "topics"),
                    f"group {group!r} reads column {name!r} from {first_topic} and {column!r} from "
                    f"{topic}; Spark takes them for the same",
                )
            elif first_type != type_:
                yield loaded.problem(
                    ("groups", group, "topics"),
                    f"group {group!r} reads column {column!r} as {first_type} from {first_topic} "
                    f"and as {type_} from {topic}; a column has one type",
                )


def _explained(source: Source, details: ErrorDetails) -> Problem:
    """A mistake in the words of the file."""
    loc = details["loc"]
    path = tuple(part for part in loc if part != "[key]")
    where = ".".join(str(part) for part in path) or "the file"
    kind = details["type"]
    if kind == "extra_forbidden":
        hint = _hint(str(path[-1]), _known_keys(path[:-1]))
        return source.problem(path, f"unknown key {where!r}{hint}")
    if kind == "missing":
        parent = ".".join(str(part) for part in path[:-1]) or "the file"
        return source.problem(path[:-1], f"{parent} needs the key {path[-1]!r}")
    message = details["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return source.problem(path, f"{where}: {message}")
    return source.problem(path, f"{where}: {message} (found {details['input']!r})")


def _known_keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys that may stand at a path, found by walking the models along it."""
    annotation: Any = BusSpec
    for part in path:
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        else:
            annotation = fields_by_key(annotation)[str(part)].annotation
        if get_origin(annotation) is UnionType:  # an optional part
            annotation = get_args(annotation)[0]
    return list(fields_by_key(annotation))


def _hint(word: str, known: Mapping[str, Any] | list[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f" (known: {', '.join(known)})" if known else ""
