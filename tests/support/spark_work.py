"""A group whose deliveries go through Spark into tables, worked off by the test itself."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from dagster import Failure
from pyspark.sql import DataFrame, SparkSession

from dagster_bus.core.bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery, OnExhausted
from dagster_bus.core.groups import Group
from dagster_bus.core.recovering import Worker
from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.store import DeadLetter
from dagster_bus.core.topic import TopicConfig
from dagster_bus.orchestration.working import work_off
from dagster_bus.spark.pipeline import ONLY
from dagster_bus.spark.processing import Work
from dagster_bus.spark.tables import Table
from dagster_bus.stores import open_store
from tests.support.builders import group_config

COLUMNS = {"n": "bigint", "name": "string"}


class Workshop:
    """One topic, one group, one Spark session."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        store = open_store(url)
        topics = [TopicConfig("orders", 2)]
        store.declare(topics)
        config = group_config(
            max_events=1_000_000,
            lease_ms=600_000,
            launch_timeout_ms=600_000,
            max_inflight=4,
            retry=RetryPolicy(max_attempts=1),
            on_exhausted=OnExhausted.ISOLATE,
        )
        self.bus = Bus(store, topics, [config], system_clock)
        self.folder = folder
        self._spark = spark
        self.work = Work(
            name="tests:pipeline",
            store=url,
            columns=COLUMNS,
            pipeline=lambda events: events.select("n", "name"),
            tables={ONLY: Table(str(folder / "table"))},
        )

    @property
    def group(self) -> Group:
        return self.bus.group("readers")

    def does(self, pipeline: Callable[[DataFrame], Any], **changes: Any) -> None:
        """Let the group do something else."""
        self.work = replace(self.work, pipeline=pipeline, **changes)

    def gives(self, *names: str) -> None:
        """Let its pipeline have several results."""
        tables = {name: Table(str(self.folder / "table" / name)) for name in names}
        self.work = replace(self.work, tables=tables)

    def publish(self, *payloads: Any) -> None:
        self.bus.publish_many("orders", payloads)

    def take(self) -> Delivery:
        """The next delivery. Whoever held it before is gone."""
        (delivery,) = self.group.reserve(lambda _: Worker.GONE)
        return self.group.lease(delivery.id, reservation=delivery.reservation, worker="run")

    def run(self, held: Delivery | None = None) -> dict[str, Any]:
        """Work off the next delivery, or the one that is held; returns what the run tells."""
        result = work_off(lambda: self._spark, self.work, self.group, held or self.take())
        return dict(result.metadata or {})

    def fails(self) -> str:
        """Work off the next delivery, which must fail; returns what the run says then."""
        try:
            self.run()
        except Failure as failure:
            return str(failure.description)
        raise AssertionError("it did not fail")

    def rows(self, name: str = "") -> list[dict[str, Any]]:
        """What an independent reader finds in the table."""
        folder = self.folder / "table" / name
        if not (folder / "_delta_log").exists():
            return []
        return pl.read_delta(str(folder)).drop("_window").to_dicts()

    def numbers(self, name: str = "") -> list[int]:
        return sorted(row["n"] for row in self.rows(name))

    def letters(self) -> list[DeadLetter]:
        found = self.bus.dead_letters("readers").list(limit=10_000)
        return sorted(found, key=lambda letter: str(letter.event.payload))
