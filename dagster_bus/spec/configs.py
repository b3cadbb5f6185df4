"""Specs in the terms of the core."""

from functools import lru_cache

from dagster_bus.core.cron import cron
from dagster_bus.core.delivery import OnExhausted
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.position import AtOffset, AtTime, Start
from dagster_bus.core.retry import BreakerPolicy, RetryPolicy
from dagster_bus.core.topic import EventFilter, TopicConfig
from dagster_bus.core.window import (
    DAILY,
    FIRST_WINDOW_MS,
    HOURLY,
    MONTHLY,
    WEEKLY,
    Windows,
)
from dagster_bus.spec.groups import FilterSpec, GroupSpec, StartSpec
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.models import RetryPolicySpec
from dagster_bus.spec.times import timestamp_ms
from dagster_bus.spec.topics import CompactionSpec, RetentionSpec
from dagster_bus.spec.work import CronWindowSpec

SPECS_KEPT = 8
"""Files whose specs are put into the core's terms once: each tick and each run opens the bus."""

_WINDOWS = {"hourly": HOURLY, "daily": DAILY, "weekly": WEEKLY, "monthly": MONTHLY}


@lru_cache(maxsize=SPECS_KEPT)
def topic_configs(loaded: LoadedSpec) -> tuple[TopicConfig, ...]:
    return tuple(topic_config(loaded, name) for name in loaded.topics)


def topic_config(loaded: LoadedSpec, name: str) -> TopicConfig:
    topic = loaded.topics[name]
    retention = topic.retention or RetentionSpec()
    compaction = topic.compaction or CompactionSpec()
    return TopicConfig(
        name=name,
        partitions=topic.partitions,
        durable=topic.durable,
        schema=loaded.schemas.get(name),
        dedup_ms=topic.dedup.window if topic.durable else 0,
        max_payload_bytes=topic.limits.payload,
        max_key_bytes=topic.limits.key,
        retain_ms=retention.age,
        retain_bytes=retention.size,
        compacted=topic.compaction is not None,
        tombstone_ms=compaction.keep_tombstones,
    )


@lru_cache(maxsize=SPECS_KEPT)
def group_configs(loaded: LoadedSpec) -> tuple[GroupConfig, ...]:
    return tuple(group_config(loaded, name) for name in loaded.spec.groups)


def group_config(loaded: LoadedSpec, name: str) -> GroupConfig:
    group = loaded.spec.groups[name]
    policy = loaded.spec.retry_policies[group.retry] if group.retry else RetryPolicySpec()
    return GroupConfig(
        name=name,
        topics=loaded.topics_of(name),
        filter=event_filter(group.filter),
        start=_start(group.start),
        order=Order(group.order),
        max_events=group.batch.max_events,
        max_bytes=group.batch.max_bytes,
        max_wait_ms=group.batch.max_wait or 0,
        max_inflight=group.batch.max_inflight,
        retry=retry_policy(policy),
        on_exhausted=_on_exhausted(group),
        windows=windows_of(group.window),
        launch_timeout_ms=group.launch_timeout,
        lease_ms=group.lease,
    )


def _on_exhausted(group: GroupSpec) -> OnExhausted:
    """Only what Spark does as a batch has bad events to be looked for. Subscribers handle each
    event by itself: what fails there fails alone."""
    asked = OnExhausted(group.on_exhausted)
    is_batch = group.pipeline is not None or group.sql is not None
    return asked if is_batch or asked is not OnExhausted.ISOLATE else OnExhausted.DEAD_LETTER


def event_filter(wanted: FilterSpec) -> EventFilter:
    keys = [wanted.key] if isinstance(wanted.key, str) else wanted.key or []
    return EventFilter(wanted.equals, tuple(wanted.exists), tuple(keys))


def windows_of(said: str | CronWindowSpec) -> Windows:
    if isinstance(said, str):
        return _WINDOWS[said]
    start_ms = FIRST_WINDOW_MS if said.start is None else timestamp_ms(said.start)
    return Windows(str(cron(said.cron)), said.timezone, start_ms)


def _start(start: str | StartSpec) -> Start:
    if isinstance(start, StartSpec):
        if start.timestamp is not None:
            return AtTime(timestamp_ms(start.timestamp))
        return AtOffset(start.offset or 1)
    return "latest" if start == "latest" else "earliest"


def retry_policy(policy: RetryPolicySpec) -> RetryPolicy:
    breaker = policy.circuit_breaker
    return RetryPolicy(
        max_attempts=policy.max_attempts,
        base_delay_ms=policy.base_delay,
        multiplier=policy.multiplier,
        max_delay_ms=policy.max_delay,
        jitter=policy.jitter,
        max_age_ms=policy.max_age,
        retry_on=tuple(policy.retry_on),
        dead_letter_on=tuple(policy.dead_letter_on),
        breaker=BreakerPolicy(breaker.failures, breaker.reset_after) if breaker else None,
    )
