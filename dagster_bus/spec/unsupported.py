"""What the grammar has and this version does not act on yet. Each line that goes is a feature."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from dagster_bus.errors import Problem
from dagster_bus.spec.base import fields_by_key
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.wrong import wrong

ALL: frozenset[str] = frozenset()
"""Stands for every value but the default."""

UNSUPPORTED: Mapping[str, Mapping[str, frozenset[str]]] = {
    "spark": {},
    "topics.NAME": {"acl": ALL},
    "groups.NAME": {
        "window": ALL,
        "job": ALL,
        "assets": ALL,
        "table.format": ALL,
        "table.options": ALL,
        "publish": ALL,
        "slo": ALL,
        "dead_letters": ALL,
        "pool": ALL,
        "tags": ALL,
    },
}


def not_yet(loaded: LoadedSpec, group: str | None = None) -> Iterator[Problem]:
    """What the file, or one group with the session it uses, asks for in vain."""
    spec = loaded.spec
    yield from _asked(loaded, ("spark",), spec.spark)
    for name, topic in spec.topics.items():
        if group is None:
            yield from _asked(loaded, ("topics", name), topic)
    for name, declared in spec.groups.items():
        if group in (None, name):
            yield from _asked(loaded, ("groups", name), declared)


def _asked(loaded: LoadedSpec, place: tuple[str, ...], model: BaseModel) -> Iterator[Problem]:
    start = place[0] if len(place) == 1 else f"{place[0]}.NAME"
    for path, values in UNSUPPORTED[start].items():
        keys = path.split(".")
        if _asks(model, keys, values):
            message = "understood, but this version does not act on it yet"
            yield wrong(loaded, (*place, *keys), message)


def _asks(model: BaseModel | None, keys: list[str], values: frozenset[str]) -> bool:
    """Whether a model holds, under some keys, a value that nothing acts on."""
    if model is None:
        return False
    value = getattr(model, keys[0])
    if keys[1:]:
        return _asks(value, keys[1:], values)
    if values:
        return value in values
    return bool(value != fields_by_key(type(model))[keys[0]].get_default(call_default_factory=True))
