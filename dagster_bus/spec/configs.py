"""Specs in the terms of the core."""

from typing import cast

from dagster_bus.core.groups import GroupConfig
from dagster_bus.core.retry import Jitter, RetryPolicy
from dagster_bus.core.topic import EventFilter, TopicConfig
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.models import RetryPolicySpec
from dagster_bus.spec.topics import CompactionSpec, RetentionSpec


def topic_configs(loaded: LoadedSpec) -> list[TopicConfig]:
    return [topic_config(loaded, name) for name in loaded.spec.topics]


def topic_config(loaded: LoadedSpec, name: str) -> TopicConfig:
    topic = loaded.spec.topics[name]
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


def group_configs(loaded: LoadedSpec) -> list[GroupConfig]:
    return [group_config(loaded, name) for name in loaded.spec.groups]


def group_config(loaded: LoadedSpec, name: str) -> GroupConfig:
    group = loaded.spec.groups[name]
    policy = loaded.spec.retry_policies[group.retry] if group.retry else RetryPolicySpec()
    return GroupConfig(
        name=name,
        topics=loaded.topics_of(name),
        filter=EventFilter(group.filter.equals, tuple(group.filter.exists)),
        max_events=group.batch.max_events,
        max_inflight=group.batch.max_inflight,
        retry=retry_policy(policy),
        launch_timeout_ms=group.launch_timeout,
        lease_ms=group.lease,
    )


def retry_policy(policy: RetryPolicySpec) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=policy.max_attempts,
        base_delay_ms=policy.base_delay,
        multiplier=policy.multiplier,
        max_delay_ms=policy.max_delay,
        jitter=cast(Jitter, policy.jitter),  # the file knows one more than the core
    )
