"""What a group does with its events and what comes of it, in the file."""

from typing import Annotated, Literal

from pydantic import Field

from dagster_bus.spec.base import MAPPING, TEXT, TEXT_OR_MAPPING, SingleValue, Spec
from dagster_bus.spec.measures import Count, Duration
from dagster_bus.spec.words import Cron, Name, Text, Timestamp, TimeZone


class CronWindowSpec(Spec):
    """Windows that begin by a schedule of your own."""

    cron: Cron = Field(description="Five fields, such as '0 6 * * *'.")
    timezone: TimeZone = Field("UTC", description="The zone that the schedule is meant in.")
    start: Timestamp | None = Field(
        None,
        description="The first window is that of this time, and all older events belong to it; "
        "without one, windows begin with 2025.",
    )


Window = Annotated[
    Annotated[Literal["hourly", "daily", "weekly", "monthly"], TEXT]
    | Annotated[CronWindowSpec, MAPPING],
    TEXT_OR_MAPPING,
]


class ExpectationSpec(Spec):
    """What every row must fulfil. Plain text is short for `condition`."""

    condition: Text = Field(description="A condition in SQL, over the columns of the result.")
    on_violation: Literal["dead_letter", "drop", "fail"] = Field(
        "dead_letter",
        description="dead_letter: the event goes to the dead letters. drop: the row is left out. "
        "fail: the batch fails.",
    )


Expectation = Annotated[
    Annotated[Text, TEXT] | Annotated[ExpectationSpec, MAPPING], TEXT_OR_MAPPING
]


class TableSpec(Spec):
    """Where a group's rows go."""

    path: Text = Field(
        description="The table's folder, from this file's folder on, or a URL that Spark can write."
    )
    format: Literal["delta", "parquet", "json", "csv"] = Field(
        "delta", description="The table's format."
    )
    options: dict[str, SingleValue] = Field(
        default_factory=dict, description="Options for Spark's writer."
    )
    results: list[Name] = Field(
        default_factory=list,
        description="The names of the pipeline's results, if it returns several; each is a table "
        "in a folder of its own.",
    )


class SloSpec(Spec):
    """What the group promises; a check in Dagster fails if it is not kept."""

    max_lag: Annotated[int, Count(0)] | None = Field(
        None, description="Events that may wait to be processed."
    )
    max_age: Annotated[int, Duration(1)] | None = Field(
        None, description="How old the oldest of them may be."
    )


class DeadLettersSpec(Spec):
    """What is expected of a group's dead letters."""

    limit: Annotated[int, Count(0)] = Field(
        description="How many there may be before a check in Dagster fails."
    )
