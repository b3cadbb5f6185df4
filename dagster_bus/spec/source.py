"""YAML as data with places: what each value is, and on which line it stands.

Only plain data is understood: strings, whole numbers, decimal numbers, true, false and null. So
`on`, `1:30` and `2026-01-02` are the texts they look like. `${NAME}` and `${NAME:-default}` inside
a value are replaced from the environment.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from dagster_bus.errors import Problem, SpecError

Path = tuple[str | int, ...]
Place = tuple[int, int]

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the resolvers of plain data only."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML's own class attribute)


for _tag, _expression, _first in (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", list("tf")),
    ("int", r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    ("float", r"[-+]?[0-9][0-9_]*\.[0-9]+(?:[eE][-+]?[0-9]+)?", list("-+0123456789")),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_expression})$"), _first
    )


@dataclass(slots=True)
class Source:
    """The data of a file, the place of every value, and the mistakes found while reading."""

    file: str
    data: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, path: Path, message: str) -> Problem:
        """A mistake at a path, or at the nearest place above it that the file has."""
        while path and path not in self.places:
            path = path[:-1]
        line, column = self.places.get(path, (1, 1))
        return Problem(self.file, line, column, message)


def read_source(text: str, file: str, environ: Mapping[str, str] | None = None) -> Source:
    """Parse YAML text. Raises SpecError if it is not YAML at all."""
    source = Source(file)
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise SpecError([Problem(file, line, column, f"not YAML: {error.problem}")]) from None
    except yaml.YAMLError as error:
        raise SpecError([Problem(file, 1, 1, f"not YAML: {error}")]) from None
    reader = _Reader(source, os.environ if environ is None else environ)
    source.data = reader.value(root, ()) if root is not None else {}
    return source


class _Reader:
    """Turns nodes into data, noting places and mistakes on the way."""

    def __init__(self, source: Source, environ: Mapping[str, str]) -> None:
        self._source = source
        self._environ = environ
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._source.places.setdefault(path, _place(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._seen:
            self._complain(node, "aliases are not supported; write the value out")
            return None
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                self._complain(key_node, "a key must be a plain word")
                continue
            if key in data:
                self._complain(key_node, f"the key {key!r} stands here a second time")
                continue
            self._source.places[(*path, key)] = _place(key_node)
            data[key] = self.value(value_node, (*path, key))
        return data

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if "${" in node.value:
            node = self._substituted(node)
        convert = _VALUES.get(node.tag)
        if convert is None:
            self._complain(node, f"the tag {node.tag} is not supported")
            return None
        try:
            return convert(node.value)
        except (ValueError, KeyError):
            self._complain(node, f"{node.value!r} is not what its tag says ({node.tag})")
            return None

    def _substituted(self, node: yaml.ScalarNode) -> yaml.ScalarNode:
        """The same scalar with variables put in; unquoted, it is typed by what they hold."""

        def replace(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            value = self._environ.get(name) or default
            if value is None:
                self._complain(
                    node,
                    f"the environment variable {name} is not set (or write ${{{name}:-default}})",
                )
            return value or ""

        text = _VARIABLE.sub(replace, node.value)
        tag = node.tag
        if node.style is None:
            tag = _Loader("").resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        return yaml.ScalarNode(tag, text, node.start_mark, node.end_mark)

    def _complain(self, node: yaml.Node, message: str) -> None:
        line, column = _place(node)
        self._source.problems.append(Problem(self._source.file, line, column, message))


_VALUES: dict[str, Callable[[str], Any]] = {
    "tag:yaml.org,2002:null": lambda _: None,
    "tag:yaml.org,2002:bool": {"true": True, "false": False}.__getitem__,
    "tag:yaml.org,2002:int": lambda text: int(text.replace("_", "")),
    "tag:yaml.org,2002:float": lambda text: float(text.replace("_", "")),
    "tag:yaml.org,2002:str": str,
}


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1
