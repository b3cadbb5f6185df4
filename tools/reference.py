"""Writes docs/topics-yaml.md from the models, so that the two cannot disagree.

python -m tools.reference
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dagster_bus.spec.measures import Measure
from dagster_bus.spec.models import BusSpec, fields_by_key
from dagster_bus.spec.shapes import forms, is_model
from dagster_bus.spec.unsupported import UNSUPPORTED

TARGET = Path(__file__).parent.parent / "docs" / "topics-yaml.md"
OPENING = """\
# `topics.yaml`

<!-- Made from the models by `make docs`; change those. -->

`dagster-bus init` writes a commented file to begin with. `dagster-bus validate` lists every mistake
with its line and column, and notes what this version understands and does not act on yet.
`dagster-bus validate --schema` prints a JSON Schema for editors; a first line
`# yaml-language-server: $schema=topics.schema.json` tells many of them where it lies.

## How values are written

- Unknown keys are refused.
- A **duration** is a number and `ms`, `s`, `m`, `h` or `d`; a **size** is a number of bytes, or a
  number and `B`, `KB`, `MB`, `GB`, `TB`, `KiB`, `MiB`, `GiB` or `TiB`. Numbers may have
  underscores.
- `${NAME}` and `${NAME:-default}` in a value, not in a key, are read from the environment; `$${`
  stands for a plain `${`.
- Relative paths count from the file's own folder.
- Topic names are segments of `a-z`, `0-9` and `-`, joined by dots. In patterns of topics, `*`
  stands for one segment and `**` for any number; `*` on its own is every topic.
- Column types are those of Spark's DDL that JSON can carry: `string`, `boolean`, `tinyint`,
  `smallint`, `int`, `bigint`, `float`, `double`, `date`, `timestamp`, `timestamp_ntz`, `binary`,
  `decimal(p,s)`, `array<…>`, `map<string,…>` and `struct<name: type, …>`; `not null` after one
  means that it must be there. Put types in quotes that have a colon or, inside braces, a comma:
  `"decimal(12,2)"`.
- YAML is taken as it looks: `on`, `1:30` and `2026-01-02` are text. Anchors, aliases, merge keys
  and tags are refused, as is a key that stands twice.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([OPENING, *_sections(BusSpec)])


def _sections(model: type[BaseModel], *paths: str) -> Iterator[str]:
    """A table for a model at all its paths, then those of the models inside it."""
    title = " and ".join(f"`{path}`" for path in paths) or "The file"
    yield f"## {title}\n\n{' '.join((model.__doc__ or '').split())}\n"
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    inside: dict[type[BaseModel], list[str]] = {}
    for key, field in fields_by_key(model).items():
        path = ".".join([*paths[:1], key])
        meaning = f"{field.description}{_not_yet(path, field)}"
        yield f"| `{key}` | {_value(field)} | {_default(field)} | {meaning} |"
        for nested, below in _models(field.annotation):
            inside.setdefault(nested, []).append(f"{path}{below}")
    yield ""
    for nested, places in inside.items():
        yield from _sections(nested, *places)


def _not_yet(path: str, field: FieldInfo) -> str:
    """What this version does not do with a key, if so."""
    for start, keys in UNSUPPORTED.items():
        if path.removeprefix(f"{start}.") in keys:
            default = _default(field)
            return f" So far only {default}." if default else " Not acted on yet."
    return ""


def _value(field: FieldInfo) -> str:
    """What may stand there, in words."""
    if measure := _measure(field):
        return measure.noun()
    kinds = [_kind(form) for form in forms(field.annotation) if form is not type(None)]
    return ", or ".join(dict.fromkeys(kinds))


def _kind(form: Any) -> str:
    origin = get_origin(form)
    if origin is Literal:
        *first, last = (f"`{choice}`" for choice in get_args(form))
        return f"{', '.join(first)} or {last}" if first else last
    if is_model(form):
        return "see below"
    if origin is dict:
        return "by name, see below" if any(_models(form)) else "by name"
    if origin is list:
        return "a list"
    return {bool: "true or false", float: "a number"}.get(form, "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default in (None, "", PydanticUndefined):
        return ""
    if measure := _measure(field):
        return f"`{measure.spelled(field.default)}`"
    return f"`{str(field.default).lower() if field.default is True else field.default}`"


def _measure(field: FieldInfo) -> Measure | None:
    """The mark of a whole number, whether it may be left out or not."""
    marks = list(field.metadata)
    if get_origin(field.annotation) is not dict:
        for form in get_args(field.annotation):
            marks.extend(getattr(form, "__metadata__", ()))
    return next((mark for mark in marks if isinstance(mark, Measure)), None)


def _models(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """The models that may stand in a value, and what leads to them from its key on."""
    for form in forms(annotation):
        if is_model(form):
            yield form, ""
        elif get_origin(form) is dict:
            yield from ((model, ".NAME") for model, _ in _models(get_args(form)[1]))


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
