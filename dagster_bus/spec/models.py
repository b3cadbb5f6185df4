"""The grammar of `topics.yaml`: the file as a whole. Its parts are in the modules beside this one.

Every field says what it is for; nothing else is accepted. What one part asks of another is not
checked here but in `rules`, so that one mistake does not hide the next.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dagster_bus.spec.base import SingleValue, Spec, fields_by_key
from dagster_bus.spec.groups import GroupSpec
from dagster_bus.spec.retry import RetryPolicySpec
from dagster_bus.spec.system import SystemSpec
from dagster_bus.spec.topics import SchemaSpec, TopicSpec
from dagster_bus.spec.words import (
    GroupName,
    MavenPackage,
    Pattern,
    PolicyName,
    SparkRemote,
    StoreUrl,
    Text,
    TopicName,
)

__all__ = [
    "BusSpec",
    "GroupSpec",
    "RetryPolicySpec",
    "SchemaSpec",
    "SparkSpec",
    "TopicSpec",
    "fields_by_key",
]


def _no_boolean(value: Any) -> Any:
    """To Python, true is 1."""
    return "true" if value is True else value


class SparkSpec(Spec):
    """The Spark session of the pipelines."""

    master: Text = Field(
        "local[*]", description="Spark's master URL: local[*], spark://…, yarn, k8s://…"
    )
    remote: SparkRemote | None = Field(
        None, description="A Spark Connect server, sc://…, in place of a master."
    )
    conf: dict[str, SingleValue] = Field(
        default_factory=dict, description="Spark settings, by their full names."
    )
    packages: list[MavenPackage] = Field(
        default_factory=list, description="Packages for the session, as group:artifact:version."
    )


class DagsterSpec(Spec):
    """What the groups become in Dagster."""

    sensors: Literal["each", "shared"] = Field(
        "each",
        description="each: every group has a sensor, whose switch pauses it. shared: one sensor "
        "goes over all groups in turn, but for those with a `job`; better for hundreds of them.",
    )


class BusSpec(Spec):
    """The whole file."""

    version: Annotated[Literal[1], BeforeValidator(_no_boolean)] = Field(
        description="The version of this grammar."
    )
    store: StoreUrl = Field(
        "sqlite:///.bus/bus.db",
        description="The address of the store: sqlite:///…, mongodb://…/database or "
        "mongodb+srv://…/database.",
    )
    spark: SparkSpec = Field(default_factory=SparkSpec, description="The Spark session.")
    strict_topics: list[Pattern] = Field(
        default_factory=list,
        description="Topics or patterns of topics that refuse payloads which do not fit their "
        "schema.",
    )
    retry_policies: dict[PolicyName, RetryPolicySpec] = Field(
        default_factory=dict, description="Retry policies by name."
    )
    dagster: DagsterSpec = Field(
        default_factory=DagsterSpec, description="What the groups become in Dagster."
    )
    system: SystemSpec = Field(
        default_factory=SystemSpec, description="What the bus tells of itself."
    )
    topics: dict[TopicName, TopicSpec] = Field(min_length=1, description="Topics by name.")
    groups: dict[GroupName, GroupSpec] = Field(
        default_factory=dict, description="Consumer groups by name."
    )
