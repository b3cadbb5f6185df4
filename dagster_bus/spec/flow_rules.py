"""Where events go: topics that groups publish to, loops, and tables."""

import os
from collections.abc import Iterator

from dagster_bus.errors import Problem
from dagster_bus.spec.hints import hint
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.wrong import wrong


def flow_rules(loaded: LoadedSpec) -> Iterator[Problem]:
    """Every mistake of this kind in the file."""
    for name in loaded.spec.groups:
        yield from _target(loaded, name)
    yield from _loops(loaded)
    yield from _shared_tables(loaded)


def _target(loaded: LoadedSpec, group: str) -> Iterator[Problem]:
    """A group publishes to a topic that is declared and that runs can reach."""
    target, place = loaded.spec.groups[group].publish, ("groups", group, "publish")
    if target is None:
        return
    declared = loaded.keys("topics")
    topic = loaded.spec.topics.get(target)
    if target not in declared:
        yield wrong(loaded, place, f"no topic {target!r} is declared{hint(target, declared)}")
    elif topic is not None and not topic.durable:
        message = f"no run can publish to {target}, which is not durable (make it durable)"
        yield wrong(loaded, place, message)
    elif topic is not None and not loaded.topics_of(group) and loaded.has_all_topics():
        message = f"the group would read nothing but {target}, which it writes (read other topics)"
        yield wrong(loaded, place, message)


def _loops(loaded: LoadedSpec) -> Iterator[Problem]:
    """Events that would come back to a group that they came from; each loop once."""
    readers: dict[str, list[str]] = {}
    for name in loaded.spec.groups:
        for topic in loaded.topics_of(name):
            readers.setdefault(topic, []).append(name)
    done: set[str] = set()
    for first in loaded.spec.groups:
        way = _way_back(loaded, first, readers) if first not in done else None
        if way:
            done.update(way)
            steps = [f"{name} → {loaded.spec.groups[name].publish}" for name in way]
            message = f"events would go round for ever: {' → '.join([*steps, first])}"
            place = ("groups", first, "publish")
            yield wrong(loaded, place, f"{message} (publish elsewhere, or read less)")


def _way_back(loaded: LoadedSpec, first: str, readers: dict[str, list[str]]) -> list[str] | None:
    """The shortest way of groups from one back to itself."""
    ways = [[first]]
    seen: set[str] = set()
    for way in ways:  # grows on the way
        for reader in readers.get(loaded.spec.groups[way[-1]].publish or "", []):
            if reader == first:
                return way
            if reader not in seen:
                seen.add(reader)
                ways.append([*way, reader])
    return None


def _shared_tables(loaded: LoadedSpec) -> Iterator[Problem]:
    """Two groups in one table would replace each other's windows."""
    owners: dict[str, str] = {}
    for name, group in loaded.spec.groups.items():
        if group.table is None:
            continue
        path = loaded.table_path(name)
        owner = owners.setdefault(path if "://" in path else os.path.normpath(path), name)
        if owner != name:
            message = f"group {owner!r} has this table already (each group has its own)"
            yield wrong(loaded, ("groups", name, "table", "path"), message)
