"""The models as a tree: which forms a value may have, and which keys may stand where."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from dagster_bus.spec.hints import Path
from dagster_bus.spec.models import BusSpec, fields_by_key


def known_keys(path: Path) -> dict[str, Any]:
    """The keys that may stand at a path, found by walking the models along it."""
    annotations: list[Any] = [BusSpec]
    for part in path:
        annotations = [inner for each in annotations for inner in _inside(each, part)]
    return next((fields_by_key(each) for each in annotations if is_model(each)), {})


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """What may stand under a key, or at a place in a list; each form by itself."""
    if is_model(annotation):
        fields = fields_by_key(annotation)
        if part in fields:
            yield from forms(fields[str(part)].annotation)
    elif get_origin(annotation) in (dict, list):
        yield from forms(get_args(annotation)[-1])


def forms(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, without its marks."""
    arguments = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        yield from forms(arguments[0])
    elif arguments and get_origin(annotation) not in (dict, list, Literal):
        for each in arguments:
            yield from forms(each)
    else:
        yield annotation


def is_model(annotation: Any) -> bool:
    """Whether an annotation is a model, and so has keys."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
