"""Mistakes that show only when one part of the file is held against another.

The rules see what is left of a file with mistakes too. One that misses something therefore asks
whether it was written, as it may have been left out for a mistake of its own.
"""

from collections.abc import Iterator

from dagster_bus.core.topic import matching
from dagster_bus.errors import Problem
from dagster_bus.spec.flow_rules import flow_rules
from dagster_bus.spec.group_rules import group_rules
from dagster_bus.spec.hints import Path, hint
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.retry import RetryPolicySpec
from dagster_bus.spec.topic_rules import topic_rules
from dagster_bus.spec.units import in_words
from dagster_bus.spec.wrong import only_one, wrong


def broken_rules(loaded: LoadedSpec) -> Iterator[Problem]:
    """Every mistake of this kind in the file."""
    yield from only_one(loaded, ("spark",), ("master", "remote"))
    yield from _strict_topics(loaded)
    for name, policy in loaded.spec.retry_policies.items():
        yield from _retry_policy(loaded, ("retry_policies", name), policy)
    for name in loaded.spec.topics:
        yield from topic_rules(loaded, name)
    for name in loaded.spec.groups:
        yield from group_rules(loaded, name)
    yield from flow_rules(loaded)


def _strict_topics(loaded: LoadedSpec) -> Iterator[Problem]:
    topics = loaded.spec.topics
    for index, pattern in enumerate(loaded.spec.strict_topics):
        place = ("strict_topics", index)
        chosen = matching(pattern, topics)
        if not chosen and loaded.has_all_topics():
            message = f"no declared topic matches {pattern!r}{hint(pattern, topics)}"
            yield wrong(loaded, place, message)
        bare = [name for name in chosen if not loaded.is_written("topics", name, "schema")]
        if bare:
            message = f"{pattern!r} matches {', '.join(bare)}, without a schema (declare one)"
            yield wrong(loaded, place, message)


def _retry_policy(loaded: LoadedSpec, place: Path, policy: RetryPolicySpec) -> Iterator[Problem]:
    if policy.max_delay < policy.base_delay:
        written = [key for key in ("max_delay", "base_delay") if loaded.is_written(*place, key)]
        yield wrong(
            loaded,
            (*place, written[0]),
            f"max_delay is shorter than base_delay, {in_words(policy.max_delay)} than "
            f"{in_words(policy.base_delay)} (raise max_delay)",
        )
    for index, name in enumerate(policy.dead_letter_on):
        if name in policy.retry_on:
            message = f"{name!r} stands in retry_on too (remove one)"
            yield wrong(loaded, (*place, "dead_letter_on", index), message)
