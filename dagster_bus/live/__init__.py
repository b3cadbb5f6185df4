"""Handlers that are called while events come: subscriptions, workers of groups, task queues."""

from dagster_bus.live.registering import on

__all__ = ["on"]
