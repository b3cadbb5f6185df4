"""A queue of tasks on a topic: calls of functions by name, made by whichever worker comes first.

A call is an event as any other: it is kept until it was made, tried again if it fails, and ends
among the dead letters of its group if no attempt helps.
"""

from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from dagster_bus.core.event import Event, Published
from dagster_bus.errors import UsageError
from dagster_bus.live.bus import LiveBus
from dagster_bus.live.errors import UnknownTask
from dagster_bus.live.options import Wishes
from dagster_bus.live.subscription import Subscription

F = TypeVar("F", bound=Callable[..., Any])

WORKERS = "workers"
"""The group that does the work, unless another one is named."""


class TaskQueue:
    """Functions that can be called through a topic."""

    def __init__(self, bus: LiveBus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self._tasks: dict[str, Callable[..., Any]] = {}

    @overload
    def task(self, function: F, *, name: str | None = None) -> F: ...

    @overload
    def task(self, function: None = None, *, name: str) -> Callable[[F], F]: ...

    def task(self, function: F | None = None, *, name: str | None = None) -> F | Callable[[F], F]:
        """Register a function, under its own name or another; as a decorator."""

        def register(function: F) -> F:
            chosen = name or function.__name__
            if chosen in self._tasks:
                raise UsageError(f"two tasks of this queue are called {chosen!r}")
            self._tasks[chosen] = function
            return function

        return register if function is None else register(function)

    def enqueue(self, name: str, *args: Any, **kwargs: Any) -> Published:
        """Have a task called, with arguments that fit into JSON. It need not be registered here:
        another process may do the work."""
        call = {"task": name, "args": args, "kwargs": kwargs}
        return self._bus.publish(self._topic, call)

    def work(self, **wishes: Unpack[Wishes]) -> Subscription:
        """Make calls in this process, as one of the workers of a `group`."""
        wishes.setdefault("group", WORKERS)
        return self._bus.subscribe(self._topic, self._call, **wishes)

    def _call(self, event: Event) -> Any:
        call = event.payload
        if not isinstance(call, dict) or "task" not in call:
            raise UnknownTask("the event is no call of a task")
        name, args, kwargs = call["task"], call.get("args", ()), call.get("kwargs", {})
        task = self._tasks.get(name)
        if task is None:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise UnknownTask(f"no task is called {name!r} here (registered: {known})")
        return task(*args, **kwargs)
