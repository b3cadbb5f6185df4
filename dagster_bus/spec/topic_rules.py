"""What the parts of a topic ask of each other."""

from collections.abc import Iterator

from dagster_bus.errors import Problem
from dagster_bus.spec.hints import Path
from dagster_bus.spec.loaded import LoadedSpec
from dagster_bus.spec.topics import AclSpec, SchemaSpec
from dagster_bus.spec.units import count
from dagster_bus.spec.wrong import needs_one, wrong

SCHEMA_KINDS = ("fields", "json_schema", "model")


def topic_rules(loaded: LoadedSpec, name: str) -> Iterator[Problem]:
    """Every mistake of this kind in one topic."""
    topic, place = loaded.spec.topics[name], ("topics", name)
    if topic.schema_ is not None:
        yield from _schema(loaded, (*place, "schema"), topic.schema_)
    if topic.retention is not None:
        yield from needs_one(loaded, (*place, "retention"), ("age", "size"))
    if topic.acl is not None:
        yield from _acl(loaded, (*place, "acl"), topic.acl)
    if not topic.durable:
        for key in ("retention", "compaction", "dedup"):
            if loaded.is_written(*place, key):
                message = "a topic that is not durable cannot have this (remove it)"
                yield wrong(loaded, (*place, key), message)
    if topic.compaction is not None and topic.retention is not None and topic.retention.size:
        message = "a compacted topic keeps every key, whatever its size (remove size or compaction)"
        yield wrong(loaded, (*place, "retention", "size"), message)


def _schema(loaded: LoadedSpec, place: Path, schema: SchemaSpec) -> Iterator[Problem]:
    yield from needs_one(loaded, place, SCHEMA_KINDS, only=True)
    seen = {schema.version}
    for key in loaded.keys(*place, "versions"):
        version = (*place, "versions", key)
        try:
            number = count(key)
        except ValueError:  # said already
            continue
        if number in seen:
            yield wrong(loaded, version, f"version {number} is declared already (remove one)")
        seen.add(number)
        if number in schema.versions:
            yield from needs_one(loaded, version, SCHEMA_KINDS, only=True)


def _acl(loaded: LoadedSpec, place: Path, acl: AclSpec) -> Iterator[Problem]:
    yield from needs_one(loaded, place, ("publish", "subscribe"))
    for key, rule in (("publish", acl.publish), ("subscribe", acl.subscribe)):
        if rule is not None and not isinstance(rule, list):
            yield from needs_one(loaded, (*place, key), ("allow", "deny"))
