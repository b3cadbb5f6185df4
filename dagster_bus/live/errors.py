"""Errors of handlers that are called while events come."""

from dagster_bus.errors import BusError


class HandlerTimeout(BusError, TimeoutError):
    """The handler took longer than it may; whatever it still does is not waited for."""


class UnknownTask(BusError):
    """No function of that name is registered with the queue in this process."""
