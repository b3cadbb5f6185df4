"""The names of a file, and what they become in Dagster. Neither Dagster nor the store is needed."""

from collections.abc import Sequence

from dagster_bus.core.naming import dead_letters_path, job_name, sensor_name, table_path, topic_path
from dagster_bus.core.topic import matching, require_pattern
from dagster_bus.errors import UnknownTopic
from dagster_bus.spec.loaded import LoadedSpec

Names = dict[str, str | None]


def called_in_dagster(loaded: LoadedSpec, patterns: Sequence[str]) -> list[Names]:
    """Topics, and the groups that read one of them; all, if no pattern is given."""
    chosen = _chosen(loaded, patterns)
    topics = [
        _row("topic", name, asset=topic_path(name)) for name in loaded.topics if name in chosen
    ]
    groups = [
        _group(loaded, name)
        for name in loaded.spec.groups
        if not patterns or chosen & {*loaded.topics_of(name)}
    ]
    return topics + groups


def _chosen(loaded: LoadedSpec, patterns: Sequence[str]) -> set[str]:
    chosen: set[str] = set() if patterns else {*loaded.topics}
    for pattern in patterns:
        require_pattern(pattern)
        found = matching(pattern, loaded.topics)
        if not found:
            known = ", ".join(sorted(loaded.topics))
            raise UnknownTopic(f"topic {pattern!r} is not declared (declared: {known})")
        chosen.update(found)
    return chosen


def _group(loaded: LoadedSpec, name: str) -> Names:
    """A group that does nothing in Spark is read by somebody else, and has no names there."""
    spec = loaded.spec.groups[name]
    if spec.pipeline is None and spec.sql is None:
        return _row("group", name)
    return _row(
        "group",
        name,
        asset=table_path(name),
        dead_letters=dead_letters_path(name),
        job=job_name(name),
        sensor=sensor_name(name),
    )


def _row(
    kind: str,
    name: str,
    *,
    asset: Sequence[str] = (),
    dead_letters: Sequence[str] = (),
    job: str | None = None,
    sensor: str | None = None,
) -> Names:
    return {
        "kind": kind,
        "name": name,
        "asset": "/".join(asset) or None,
        "dead_letters": "/".join(dead_letters) or None,
        "job": job,
        "sensor": sensor,
    }
