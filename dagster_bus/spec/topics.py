"""`topics` in the file."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from dagster_bus.core.topic import MIB
from dagster_bus.spec.base import LIST, LIST_OR_MAPPING, MAPPING, Spec
from dagster_bus.spec.measures import Count, Duration, Size
from dagster_bus.spec.words import (
    CallerPattern,
    Class,
    ColumnName,
    ColumnType,
    LabelKey,
    LabelValue,
    OwnerName,
    Text,
    WebAddress,
)

LARGEST_PAYLOAD = 512 * MIB
HIGHEST_VERSION = (1 << 31) - 1


def _distinct(fields: dict[str, str]) -> dict[str, str]:
    """Spark does not tell `id` from `ID`."""
    seen: dict[str, str] = {}
    for name in fields:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise ValueError(
                f"{other!r} and {name!r} differ in case only, and Spark takes them for one "
                "(rename one)"
            )
    return fields


Version = Annotated[int, Count(1, HIGHEST_VERSION)]


class SchemaVersionSpec(Spec):
    """Another version of a topic's schema: by one of the three."""

    fields: Annotated[dict[ColumnName, ColumnType], AfterValidator(_distinct)] | None = Field(
        None, min_length=1, description="Column names and their types."
    )
    json_schema: Text | None = Field(
        None, description="The path of a JSON Schema file, from this file's folder on."
    )
    model: Class | None = Field(None, description="A pydantic model, module:Class.")


class SchemaSpec(SchemaVersionSpec):
    """What a topic's payloads look like: by `fields`, a `json_schema` or a `model`."""

    mode: Literal["strict", "permissive"] | None = Field(
        None,
        description="strict: refuse what does not fit. permissive: let it pass with a warning. If "
        "not said, `strict_topics` decides.",
    )
    version: Version = Field(1, description="The number of this version.")
    versions: dict[Version, SchemaVersionSpec] = Field(
        default_factory=dict,
        description="Other versions that publishers may still use, by their numbers.",
    )


class DedupSpec(Spec):
    """How repeated events are recognised."""

    window: Annotated[int, Duration()] = Field(
        600_000,
        description="For how long an idempotency key is remembered; 0s is not at all.",
    )


class LimitsSpec(Spec):
    """How large an event may be."""

    payload: Annotated[int, Size(1, LARGEST_PAYLOAD)] = Field(
        MIB, description="The payload's JSON text."
    )
    key: Annotated[int, Size(1, LARGEST_PAYLOAD)] = Field(MIB, description="The key.")


class RetentionSpec(Spec):
    """When events are deleted: whichever comes first, and not before every group has settled
    them."""

    age: Annotated[int, Duration(1)] | None = Field(None, description="Once they are this old.")
    size: Annotated[int, Size(1)] | None = Field(
        None, description="The oldest, once the topic is larger; its partitions share this."
    )


class CompactionSpec(Spec):
    """Only the newest event of each key is kept; one with a null payload deletes its key. `{}`
    turns it on."""

    keep_tombstones: Annotated[int, Duration()] = Field(
        86_400_000, description="For how long readers can see that a key was deleted."
    )


class AccessRuleSpec(Spec):
    """Who may and who may not. A plain list is short for `allow`."""

    allow: list[CallerPattern] | None = Field(
        None, description="Callers by name, `*` for any part of it; everybody if not said."
    )
    deny: list[CallerPattern] = Field(
        default_factory=list, description="Callers that are refused, allowed or not."
    )


AccessRule = Annotated[
    Annotated[list[CallerPattern], LIST] | Annotated[AccessRuleSpec, MAPPING], LIST_OR_MAPPING
]


class AclSpec(Spec):
    """Who may use the topic over the network."""

    publish: AccessRule | None = Field(None, description="Who may publish; everybody if not said.")
    subscribe: AccessRule | None = Field(None, description="Who may read; everybody if not said.")


class TopicSpec(Spec):
    """A log of events of one kind."""

    description: str = Field("", description="What the events are; shown in Dagster.")
    owners: list[OwnerName] = Field(
        default_factory=list, description="team:name or an e-mail address; shown in Dagster."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Tags of its asset in Dagster, to be found by."
    )
    docs: WebAddress | None = Field(
        None, description="Where people read more about it; Dagster shows the link."
    )
    partitions: Annotated[int, Count(1, 1_000)] = Field(
        1, description="Ordered sequences in the log."
    )
    durable: bool = Field(
        True, description="false: the topic lives in the memory of one process and ends with it."
    )
    schema_: SchemaSpec | None = Field(
        None, alias="schema", description="What the payload looks like."
    )
    dedup: DedupSpec = Field(
        default_factory=DedupSpec, description="How repeated events are recognised."
    )
    limits: LimitsSpec = Field(default_factory=LimitsSpec, description="How large an event may be.")
    retention: RetentionSpec | None = Field(
        None, description="When events are deleted; never if not said."
    )
    compaction: CompactionSpec | None = Field(
        None, description="Keep only the newest event of each key."
    )
    acl: AclSpec | None = Field(None, description="Who may publish and subscribe.")
