"""A group's rows as events of another topic.

They are collected before any table takes them, so that what the topic would refuse is found in
time. They are appended later, in the step that settles the delivery: a delivery is settled once,
and so its rows are published once, however often it was tried and whenever that was.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from dagster_bus.core.event import Batch, Message
from dagster_bus.core.lease import Keeper
from dagster_bus.errors import UsageError
from dagster_bus.spark.source.options import Options
from dagster_bus.spark.source.rows import layout, messages


def prepare_rows(rows: DataFrame, topic: str, keeper: Keeper) -> tuple[Batch, ...]:
    """Rows, ready to be published as the data source would publish them; none makes no batch.
    Raises UsageError if the topic would refuse one."""
    group = keeper.held.group
    try:
        chosen = layout(rows.schema, Options({}))
        found: list[Message] = []
        for part in rows.toArrow().to_batches():
            found += messages(part, chosen, group)
        return (keeper.prepare(topic, found),) if found else ()
    except UsageError as error:
        raise type(error)(f"the rows cannot be published to {topic}: {error}") from error


def only(results: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a group that publishes: it has one result."""
    (rows,) = results.values()
    return rows
