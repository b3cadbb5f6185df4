"""`system` in the file: what the bus tells of itself, on topics of its own."""

from typing import Annotated

from pydantic import Field

from dagster_bus.core import system
from dagster_bus.spec.base import Spec
from dagster_bus.spec.measures import Duration
from dagster_bus.spec.topics import RetentionSpec, TopicSpec

KEPT = RetentionSpec.model_validate({"age": "30d"})
"""How long the bus keeps what it tells of itself."""


class SystemSpec(Spec):
    """What the bus tells of itself, durably, to whoever reads the topics `system.…`. Nothing, if
    not said."""

    metrics: Annotated[int, Duration(100)] | None = Field(
        None,
        description="How often each process with subscribers tells its counters, and the lag of "
        "their groups, on system.metrics.",
    )
    dlq: bool = Field(
        False, description="Whether the dead letters of all groups are mirrored to system.bus.dlq."
    )
    audit: bool = Field(
        False,
        description="Whether every publish, acknowledgement and redelivery is told on "
        "system.bus.audit.",
    )


def system_topics(spec: SystemSpec) -> dict[str, TopicSpec]:
    """The topics that are there because they were asked for."""
    return {
        name: TopicSpec(description=description, retention=KEPT)
        for name, description, is_on in (
            (system.METRICS, "Counters and gauges of the bus.", spec.metrics is not None),
            (system.DEAD_LETTERS, "The dead letters of all groups.", spec.dlq),
            (system.AUDIT, "What was published, and how deliveries ended.", spec.audit),
        )
        if is_on
    }
