"""The grammar of `topics.yaml`. Every field says what it is for; nothing else is accepted."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dagster_bus.core.event import Attribute
from dagster_bus.core.topic import require_pattern, require_topic_name
from dagster_bus.errors import UsageError
from dagster_bus.schemas.types import normal_type
from dagster_bus.spec.units import DurationMs


def _by_the_core(require: Callable[[str], None]) -> AfterValidator:
    """A rule of the core as a rule of the file."""

    def check(text: str) -> str:
        try:
            require(text)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(check)


def _attribute(value: Any) -> Attribute:
    if not isinstance(value, str | int | float):
        raise ValueError(
            f"{value!r} cannot stand here; attributes are text, numbers, true or false"
        )
    return value


def _spelled(expression: str, advice: str) -> AfterValidator:
    """A check of a word's spelling that says in words what is allowed."""

    def check(word: str) -> str:
        if not re.fullmatch(expression, word):
            raise ValueError(f"{word!r} cannot stand here; {advice}")
        return word

    return AfterValidator(check)


def _distinct(fields: dict[str, str]) -> dict[str, str]:
    """Spark does not tell `id` from `ID`."""
    seen: dict[str, str] = {}
    for name in fields:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise ValueError(
                f"{other!r} and {name!r} differ in case only; Spark takes them for one"
            )
    return fields


TopicName = Annotated[str, _by_the_core(require_topic_name)]
Pattern = Annotated[str, _by_the_core(require_pattern)]
GroupName = Annotated[
    str, _spelled(r"[a-z0-9][a-z0-9-]{0,59}", "a group's name is at most 60 of a-z, 0-9 and '-'")
]
ColumnName = Annotated[
    str, _spelled(r"[A-Za-z]\w*", "a column's name is a letter, then letters, digits and '_'")
]
OwnerName = Annotated[
    str,
    _spelled(
        r"team:.+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}",
        "an owner is team:NAME or an e-mail address",
    ),
]
StoreUrl = Annotated[
    str, _spelled(r"sqlite:///.+", "a store is sqlite:///path/to/bus.db (more kinds will follow)")
]
AttributeValue = Annotated[Any, AfterValidator(_attribute)]
ColumnType = Annotated[str, AfterValidator(normal_type)]
ImportPath = Annotated[
    str, _spelled(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "write module:function, such as shop.jobs:clean")
]


class Spec(BaseModel):
    """Frozen, and strict about what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SparkSpec(Spec):
    """The Spark session of the pipelines."""

    master: str = Field("local[*]", description="Spark's master URL.")
    conf: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Spark settings, by their full names."
    )


class RetryPolicySpec(Spec):
    """How often a failed batch is tried, and how long it waits in between."""

    max_attempts: int = Field(4, ge=1, description="Attempts in all, the first included.")
    base_delay: DurationMs = Field(1_000, description="The wait before the second attempt.")
    multiplier: float = Field(
        2.0, ge=1, strict=False, description="How much longer each further wait is."
    )
    max_delay: DurationMs = Field(30_000, description="No wait is longer.")
    jitter: Literal["none", "full"] = Field(
        "full", description="full: wait a random part of the delay. none: wait all of it."
    )


class SchemaSpec(Spec):
    """The columns of a topic's payload."""

    fields: Annotated[dict[ColumnName, ColumnType], AfterValidator(_distinct)] = Field(
        min_length=1, description="Column names and their types."
    )


class TopicSpec(Spec):
    """A log of events of one kind."""

    description: str = Field("", description="What the events are; shown in Dagster.")
    owners: list[OwnerName] = Field(
        default_factory=list, description="team:name or an e-mail address; shown in Dagster."
    )
    partitions: int = Field(1, ge=1, le=1_000, description="Ordered sequences in the log.")
    schema_: SchemaSpec | None = Field(
        None, alias="schema", description="The columns of the payload."
    )


class FilterSpec(Spec):
    """Which events a group wants; the others are counted as filtered."""

    equals: dict[str, AttributeValue] = Field(
        default_factory=dict, description="Attributes with just these values."
    )
    exists: list[str] = Field(default_factory=list, description="Attributes that must be there.")


class BatchSpec(Spec):
    """How much a delivery takes, and how many may be under way."""

    max_events: int = Field(50_000, ge=1, description="Events in one run.")
    max_inflight: int = Field(2, ge=1, description="Runs at the same time.")


class TableSpec(Spec):
    """Where a group's rows go."""

    path: str = Field(min_length=1, description="The table's folder, from this file's folder on.")
    format: Literal["delta"] = Field("delta", description="The table's format.")


class GroupSpec(Spec):
    """A reader of topics with work to do."""

    description: str = Field("", description="What the group's table holds; shown in Dagster.")
    owners: list[OwnerName] = Field(
        default_factory=list, description="team:name or an e-mail address; shown in Dagster."
    )
    topics: list[Pattern] = Field(min_length=1, description="Topics or patterns of topics.")
    filter: FilterSpec = Field(
        default_factory=FilterSpec, description="Which of their events are wanted."
    )
    batch: BatchSpec = Field(default_factory=BatchSpec, description="How runs are cut.")
    retry: str | None = Field(
        None, description="The name of a retry policy; without one, a policy's defaults count."
    )
    on_exhausted: Literal["dead_letter"] = Field(
        "dead_letter", description="What happens to a batch when its attempts are used up."
    )
    window: Literal["hourly"] = Field("hourly", description="The table's Dagster partitions.")
    pipeline: ImportPath = Field(
        description="module:function, from a DataFrame of events to a DataFrame of rows."
    )
    table: TableSpec = Field(description="Where the rows go.")
    launch_timeout: DurationMs = Field(
        120_000, ge=1, description="How long a requested run may take to start."
    )
    lease: DurationMs = Field(
        60_000, ge=1_000, description="How long a run may be silent before its work is handed on."
    )


class BusSpec(Spec):
    """The whole file."""

    version: Literal[1] = Field(description="The version of this grammar.")
    store: StoreUrl = Field("sqlite:///.bus/bus.db", description="The address of the store.")
    spark: SparkSpec = Field(default_factory=SparkSpec, description="The Spark session.")
    retry_policies: dict[str, RetryPolicySpec] = Field(
        default_factory=dict, description="Retry policies by name."
    )
    topics: dict[TopicName, TopicSpec] = Field(min_length=1, description="Topics by name.")
    groups: dict[GroupName, GroupSpec] = Field(
        default_factory=dict, description="Consumer groups by name."
    )


def fields_by_key(model: type[BaseModel]) -> dict[str, Any]:
    """A model's fields by the key they have in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}
