"""Options that several commands share, and what their texts mean."""

import json
from typing import Any

import click

from dagster_bus.connectors.ndjson import milliseconds
from dagster_bus.core.event import Attribute
from dagster_bus.core.position import AtOffset, AtTime, Start
from dagster_bus.core.topic import TopicPartition
from dagster_bus.errors import UsageError
from dagster_bus.opening import Bus
from dagster_bus.spec.units import duration_ms

LONGEST_NUMBER = 9
"""Digits of a partition's number, at the most."""

LONGEST_DURATION_MS = 36_500 * 86_400_000

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def attribute_values(pairs: tuple[str, ...], option: str) -> dict[str, Attribute]:
    """NAME=VALUE pairs; a value is a number or a boolean if it looks like one, else text."""
    found: dict[str, Attribute] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        try:
            value = json.loads(text, parse_constant=str)
        except (ValueError, RecursionError):
            value = text
        found[name] = value if isinstance(value, str | int | float) else text
    return found


def durable_topics(bus: Bus, patterns: tuple[str, ...]) -> list[str]:
    """The topics that patterns select, without those in the memory of some program."""
    durable = {topic.name for topic in bus.topics if topic.durable}
    names = [name for name in bus.select(*patterns) if name in durable]
    if not names:
        raise UsageError("all of these topics live in the memory of one program (durable: false)")
    return names


class StartType(click.ParamType[Start]):
    """earliest, latest, an offset, or a time in ISO 8601 (UTC unless it says otherwise)."""

    name = "start"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Start:
        if not isinstance(value, str):
            start: Start = value
            return start
        if value in ("earliest", "latest"):
            return value  # type: ignore[return-value]
        try:
            return AtOffset(int(value)) if value.isdecimal() else AtTime(milliseconds(value))
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a place to begin: write earliest, latest, an offset such as "
                "1200, or a time such as 2026-11-18T04:00",
                param,
                context,
            )


START = StartType()


class TimeType(click.ParamType[int]):
    """A time in ISO 8601 (UTC unless it says otherwise), as milliseconds since 1970."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        try:
            return value if isinstance(value, int) else milliseconds(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time such as 2026-11-18T04:00", param, context)


TIME = TimeType()


class DurationType(click.ParamType[int]):
    """A duration such as 30d or 12h, as milliseconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        try:
            found = value if isinstance(value, int) else duration_ms(value)
        except ValueError as error:
            self.fail(str(error), param, context)
        if found > LONGEST_DURATION_MS:
            self.fail(f"{value} is longer than 36500d", param, context)
        return found


DURATION = DurationType()


class PartitionType(click.ParamType[TopicPartition]):
    """A partition of a topic, such as orders.created/0."""

    name = "partition"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> TopicPartition:
        if isinstance(value, TopicPartition):
            return value
        topic, _, number = value.rpartition("/")
        if not topic or not number.isdecimal() or len(number) > LONGEST_NUMBER:
            self.fail(f"{value!r} is not a partition such as orders.created/0", param, context)
        return TopicPartition(topic, int(number))


PARTITION = PartitionType()

LETTER = click.IntRange(1, (1 << 63) - 1)
"""The id of a dead letter."""
