"""A bus to read and write through Spark's data source."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Message
from dagster_bus.core.topic import SchemaConfig, SchemaVersion, TopicConfig
from dagster_bus.schemas import compile_schema
from dagster_bus.stores import open_store

COLUMNS = {
    "n": "bigint",
    "price": "decimal(12,2)",
    "at": "timestamp",
    "tags": "array<string>",
    "seen": "map<string,int>",
    "ship": "struct<day:date,express:boolean>",
}
SCHEMA = SchemaConfig({1: SchemaVersion("fields", COLUMNS)}, current=1)
TOPICS = [
    TopicConfig("orders.created", 2, schema=SCHEMA),
    TopicConfig("orders.paid", 1),
    TopicConfig("out", 2),
]


def open_bus(url: str) -> Bus:
    store = open_store(url)
    store.declare(TOPICS)
    return Bus(store, TOPICS, compile_schema=compile_schema)


def publish(bus: Bus, topic: str, numbers: Iterable[int], **fields: Any) -> None:
    bus.publish_many(topic, [Message({"n": n}, **fields) for n in numbers])


def read(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    """By default everything below `orders`."""
    given = {"store": url, "topics": "orders.*"} | options
    return spark.read.format("dagster_bus").options(**given).load()


def numbers(events: DataFrame) -> list[int]:
    """The payloads' numbers, in order."""
    rows = events.selectExpr("cast(get_json_object(payload, '$.n') as int) AS n").collect()
    return sorted(row.n for row in rows)


def published(bus: Bus, topic: str = "out") -> list[int]:
    return sorted(
        event.payload["n"] for at in bus.bounds(topic) for event in bus.read(topic, at.partition)
    )
