"""What the grammar has and this version does not act on yet. Each line that goes is a feature."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel

from dagster_bus.errors import Problem
from dagster_bus.spec.base import fields_by_key
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.wrong import wrong

UNSUPPORTED: Mapping[str, Sequence[str]] = {
    "topics.NAME": ("acl",),
}
"""Keys of which any value but the default is asked for in vain."""


def not_yet(loaded: LoadedSpec) -> Iterator[Problem]:
    """What a file asks for in vain."""
    for name, topic in loaded.spec.topics.items():
        yield from _asked(loaded, ("topics", name), topic)


def _asked(loaded: LoadedSpec, place: tuple[str, ...], model: BaseModel) -> Iterator[Problem]:
    for key in UNSUPPORTED[f"{place[0]}.NAME"]:
        default = fields_by_key(type(model))[key].get_default(call_default_factory=True)
        if getattr(model, key) != default:
            message = "understood, but this version does not act on it yet"
            yield wrong(loaded, (*place, key), message)
