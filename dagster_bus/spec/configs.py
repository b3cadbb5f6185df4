"""Specs in the terms of the core."""

from dagster_bus.core.groups import GroupConfig
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.topic import EventFilter, TopicConfig
from dagster_bus.spec.load import LoadedSpec
from dagster_bus.spec.models import RetryPolicySpec


def topic_configs(loaded: LoadedSpec) -> list[TopicConfig]:
    return [TopicConfig(name, topic.partitions) for name, topic in loaded.spec.topics.items()]


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
        retry=RetryPolicy(
            max_attempts=policy.max_attempts,
            base_delay_ms=policy.base_delay,
            multiplier=policy.multiplier,
            max_delay_ms=policy.max_delay,
            jitter=policy.jitter,
        ),
        launch_timeout_ms=group.launch_timeout,
        lease_ms=group.lease,
    )
