"""From the file to checked specs, with every mistake found reported at its place."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dagster_bus.errors import Problem, SpecError
from dagster_bus.spec.files import read_text
from dagster_bus.spec.hints import Path as Place
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.mistakes import explained, written_path
from dagster_bus.spec.models import BusSpec
from dagster_bus.spec.rules import broken_rules
from dagster_bus.spec.schemas import SchemaReader
from dagster_bus.spec.source import Source, read_source

__all__ = ["LoadedSpec", "load_spec"]


def load_spec(path: str | Path, environ: Mapping[str, str] | None = None) -> LoadedSpec:
    """Read and check a file. Raises SpecError listing every mistake found."""
    file = Path(path)
    source = read_source(read_text(file), file.name, environ)
    folder = file.resolve().parent
    spec, problems = _checked(source)
    problems.extend(source.problems)
    if spec is None:
        raise SpecError(problems)
    reader = SchemaReader(spec, folder, source)
    loaded = LoadedSpec(spec, folder, source, reader.read())
    problems.extend(reader.problems)
    problems.extend(broken_rules(loaded))
    if problems:
        raise SpecError(problems)
    return loaded


def _checked(source: Source) -> tuple[BusSpec | None, list[Problem]]:
    """The specs, and what does not fit them.

    With mistakes in it, the file is checked again without the values they stand in, so that what is
    left can be held against each other; None if nothing sensible is left."""
    problems: list[Problem] = []
    data = source.data
    while True:
        try:
            return BusSpec.model_validate(data), problems
        except ValidationError as error:
            found = error.errors()
        if data is source.data:  # later on, what is missing is missing for having been left out
            problems = [each for details in found for each in _new_problem(source, details)]
        rest = _without(data, {_wrong(source, details) for details in found}, ())
        if rest is None or rest == data:
            return None, problems
        data = rest


def _new_problem(source: Source, details: ErrorDetails) -> Iterator[Problem]:
    """A mistake, unless the value could not be read and that was said."""
    if written_path(source, details["loc"]) not in source.unreadable:
        yield explained(source, details)


def _wrong(source: Source, details: ErrorDetails) -> Place:
    """What to leave out. A list goes whole: places in the rest of it would not be the file's."""
    missing = details["type"] == "missing"
    path = written_path(source, details["loc"][:-1] if missing else details["loc"])
    return tuple(itertools.takewhile(lambda part: isinstance(part, str), path))


def _without(data: Any, wrong: set[Place], path: Place) -> Any:
    if path in wrong:
        return None
    if not isinstance(data, dict):
        return data
    rest = {key: _without(value, wrong, (*path, key)) for key, value in data.items()}
    return {key: value for key, value in rest.items() if value is not None}
