"""Handlers that are declared where they are written, before there is a bus."""

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar, Unpack

from dagster_bus.live.crew import Handler
from dagster_bus.live.options import Wishes

if TYPE_CHECKING:
    from dagster_bus.live.bus import LiveBus

H = TypeVar("H", bound=Handler)

_MARK = "__dagster_bus_subscriptions__"


def on(pattern: str, **wishes: Unpack[Wishes]) -> Callable[[H], H]:
    """Mark a function as a handler of events, with the options of `Bus.subscribe`. It is called
    once its module is put to work: by `dagster-bus work`, or by `subscribe_marked`."""

    def mark(handler: H) -> H:
        setattr(handler, _MARK, [*getattr(handler, _MARK, ()), (pattern, wishes)])
        return handler

    return mark


def subscribe_marked(bus: "LiveBus", module: ModuleType) -> int:
    """Subscribe each handler of a module that is marked; returns how many subscriptions that
    made."""
    handlers = {id(each): each for each in vars(module).values() if hasattr(each, _MARK)}
    made = 0
    for handler in handlers.values():
        for pattern, wishes in getattr(handler, _MARK):
            bus.subscribe(pattern, handler, **wishes)
            made += 1
    return made
