"""`groups` in the file."""

from typing import Annotated, Literal

from pydantic import Field

from dagster_bus.core.topic import LAST_OFFSET
from dagster_bus.spec.base import (
    LIST,
    MAPPING,
    TEXT,
    TEXT_OR_LIST,
    TEXT_OR_MAPPING,
    SingleValue,
    Spec,
)
from dagster_bus.spec.measures import Count, Duration, Size
from dagster_bus.spec.words import (
    DagsterName,
    Function,
    LabelKey,
    LabelValue,
    Name,
    OwnerName,
    Pattern,
    PoolName,
    TagKey,
    Text,
    Timestamp,
    TopicName,
    WebAddress,
)
from dagster_bus.spec.work import DeadLettersSpec, Expectation, SloSpec, TableSpec, Window

TextOrTexts = Annotated[Annotated[Text, TEXT] | Annotated[list[Text], LIST], TEXT_OR_LIST]


class FilterSpec(Spec):
    """Which events a group wants; the others are counted as filtered."""

    equals: dict[str, SingleValue] = Field(
        default_factory=dict, description="Attributes with just these values."
    )
    exists: list[str] = Field(default_factory=list, description="Attributes that must be there.")
    key: TextOrTexts | None = Field(None, description="The event's key: one, or a list of them.")


class StartSpec(Spec):
    """A place in the log: one of the two."""

    offset: Annotated[int, Count(1, LAST_OFFSET)] | None = Field(
        None, description="The same offset in every partition; the first is 1."
    )
    timestamp: Timestamp | None = Field(
        None, description="The first event at this time or later; ISO 8601 with its zone."
    )


Start = Annotated[
    Annotated[Literal["earliest", "latest"], TEXT] | Annotated[StartSpec, MAPPING], TEXT_OR_MAPPING
]


class BatchSpec(Spec):
    """How much a delivery takes, and how many may be under way."""

    max_events: Annotated[int, Count(1)] = Field(50_000, description="Events in one run.")
    max_bytes: Annotated[int, Size(1)] | None = Field(
        None, description="Their size, if that is reached first."
    )
    max_wait: Annotated[int, Duration()] | None = Field(
        None, description="How long a batch that is not full waits for more events."
    )
    max_inflight: Annotated[int, Count(1, 10_000)] = Field(2, description="Runs at the same time.")


class GroupSpec(Spec):
    """A reader of topics with work to do: a `pipeline`, `sql`, a `job` or `assets`. One without any
    of them is read by subscribers in a program of yours."""

    description: str = Field("", description="What the group is for; shown in Dagster.")
    owners: list[OwnerName] = Field(
        default_factory=list, description="team:name or an e-mail address; shown in Dagster."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Tags of its assets in Dagster, to be found by."
    )
    docs: WebAddress | None = Field(
        None, description="Where people read more about it; Dagster shows the link."
    )
    topics: list[Pattern] = Field(min_length=1, description="Topics or patterns of topics.")
    filter: FilterSpec = Field(
        default_factory=FilterSpec, description="Which of their events are wanted."
    )
    start: Start = Field("earliest", description="Where a new group begins.")
    order: Literal["none", "key", "partition"] = Field(
        "none",
        description="What waits behind a failed batch: nothing, later events of its keys, or its "
        "partitions.",
    )
    batch: BatchSpec = Field(default_factory=BatchSpec, description="How runs are cut.")
    retry: str | None = Field(
        None, description="The name of a retry policy; without one, a policy's defaults count."
    )
    on_exhausted: Literal["isolate", "dead_letter", "block"] = Field(
        "isolate",
        description="What happens when a batch's attempts are used up. isolate: only the events "
        "that fail alone go to the dead letters. dead_letter: all of them do. block: the group "
        "stops.",
    )
    window: Window = Field(
        "hourly",
        description="The spans of time that the table is divided by, its partitions in Dagster. "
        "Days, weeks (from Sunday on) and months are those of UTC.",
    )
    pipeline: Function | None = Field(
        None,
        description="module:function, from a DataFrame of events to a DataFrame of rows, or to "
        "several by name; with a second DataFrame of events that it rejects, if any.",
    )
    sql: Text | None = Field(
        None, description="A query over the view `events` that gives the rows."
    )
    job: DagsterName | None = Field(
        None,
        description="A Dagster job of your own that is started for each batch, and whose outcome "
        "settles it.",
    )
    assets: TextOrTexts | None = Field(
        None,
        description="Dagster assets that are materialized for each batch: a list of keys, or a "
        "selection.",
    )
    params: dict[Name, SingleValue] = Field(
        default_factory=dict, description="Values for the query's `:name` parameters."
    )
    expect: dict[Name, Expectation] = Field(
        default_factory=dict, description="Conditions on every row, by name."
    )
    corrupt: Literal["column", "dead_letter"] | None = Field(
        None,
        description="Payloads that do not fit the columns. column: their text goes into the column "
        "`_corrupt`. dead_letter: the event goes to the dead letters.",
    )
    table: TableSpec | None = Field(None, description="Where the rows go.")
    publish: TopicName | None = Field(
        None,
        description="The topic that each row is published to. A pattern in `topics` does not "
        "select it.",
    )
    slo: SloSpec | None = Field(None, description="What the group promises.")
    dead_letters: DeadLettersSpec | None = Field(
        None, description="What is expected of its dead letters."
    )
    pool: PoolName | None = Field(
        None, description="The Dagster pool that limits how many runs are under way."
    )
    tags: dict[TagKey, str] = Field(default_factory=dict, description="Tags of its runs.")
    launch_timeout: Annotated[int, Duration(1)] = Field(
        120_000, description="How long a requested run may take to start."
    )
    lease: Annotated[int, Duration(1_000)] = Field(
        60_000, description="How long a run may be silent before its work is handed on."
    )
