"""Writes docs/topics-yaml.md from the models, so that the two cannot disagree.

python -m tools.reference
"""

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dagster_bus.spec.models import BusSpec, fields_by_key
from dagster_bus.spec.units import DurationMs, in_words

TARGET = Path(__file__).parent.parent / "docs" / "topics-yaml.md"
OPENING = """\
# `topics.yaml`

<!-- Made from the models by `make docs`; change those. -->

Unknown keys are refused. Durations are a number and `ms`, `s`, `m`, `h` or `d`. Numbers may have
underscores. `${NAME}` and `${NAME:-default}` are read from the environment. Relative paths count
from the file's own folder. `dagster-bus validate` lists every mistake with its line.

Topic names are segments of `a-z`, `0-9` and `-`, joined by dots. In a group's `topics`, `*` stands
for one segment and `**` for any number. Column types are `string`, `boolean`, `int`, `bigint`,
`float`, `double`, `date`, `timestamp` and `decimal(p,s)`; write `"decimal(12,2)"` in quotes inside
braces, as its comma would end the entry.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([OPENING, *_sections(BusSpec, "The file")])


def _sections(model: type[BaseModel], title: str) -> Iterator[str]:
    """A table for a model, then those of the models inside it."""
    yield f"## {title}\n\n{(model.__doc__ or '').strip()}\n"
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    inside = []
    for key, field in fields_by_key(model).items():
        cells = (f"`{key}`", _value(field), _default(field), field.description or "")
        yield "| " + " | ".join(cells) + " |"
        nested = _model_in(field.annotation)
        if nested:
            path = key if title == "The file" else f"{title.strip('`')}.{key}"
            inside.append((nested, f"`{path}{'.NAME' if _is_mapping(field.annotation) else ''}`"))
    yield ""
    for nested, path in inside:
        yield from _sections(nested, path)


def _value(field: FieldInfo) -> str:
    annotation = field.annotation
    if any(each in field.metadata for each in get_args(DurationMs)[1:]):
        return "a duration"
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if _model_in(annotation):
        return "by name, see below" if _is_mapping(annotation) else "see below"
    if _is_mapping(annotation):
        return "by name"
    if get_origin(annotation) is list:
        return "a list"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return next((names[kind] for kind in kinds if kind in names), "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default in (None, "", PydanticUndefined):
        return ""
    if any(each in field.metadata for each in get_args(DurationMs)[1:]):
        return f"`{in_words(field.default)}`"
    return (
        f"`{field.default:,}`".replace(",", "_")
        if type(field.default) is int
        else f"`{field.default}`"
    )


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation is, or holds."""
    candidates = (annotation, *get_args(annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is dict


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
