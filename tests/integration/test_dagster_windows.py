"""Partitions of a group's table that an operator materializes, beside the live group."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_bus import Bus
from dagster_bus.core.clock import system_clock
from dagster_bus.core.window import HOUR_MS, HOURLY
from tests.support import pipelines
from tests.support.dagster_project import JOB, Project

NOW = system_clock()
OPEN = HOURLY.at(NOW).key
EARLIER = HOURLY.at(NOW - HOUR_MS).key


class Desk:
    """A project, and an operator who materializes partitions of its table."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.file = project.file

    def publish(self, *numbers: int, hours_ago: int = 0) -> None:
        """Events of this hour, or of an earlier one."""
        from dagster_bus.core.event import Message

        ts = NOW - hours_ago * HOUR_MS
        with Bus.open(self.file) as bus:
            bus.publish_many("orders.created", [Message({"n": n}, ts=ts) for n in numbers])

    def deliver(self) -> None:
        """Let the group do all there is."""
        for request in self.project.tick().run_requests or []:
            assert self.project.run(request).success

    def materialize(self, *keys: str) -> Any:
        """A run without a delivery, for one partition or a range of them."""
        tags = {
            "dagster/asset_partition_range_start": keys[0],
            "dagster/asset_partition_range_end": keys[-1],
        }
        job = self.project.defs.resolve_job_def(JOB)
        return job.execute_in_process(
            instance=self.project.instance,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags=tags if len(keys) > 1 else {},
            raise_on_error=False,
        )

    def told(self, result: Any) -> dict[str, dict[str, Any]]:
        """What a run says of each partition."""
        assert result.success
        events = result.asset_materializations_for_node("order_table")
        return {
            event.partition: {name: each.value for name, each in event.metadata.items()}
            for event in events
        }

    def rows(self) -> dict[str, list[int]]:
        """The numbers in each window, as an independent reader sees them."""
        found = pl.read_delta(str(self.file.parent / "data/orders")).select("_window", "n").rows()
        return {
            window: sorted(n for each, n in found if each == window)
            for window in sorted({window for window, _ in found})
        }


@pytest.fixture
def desk(project: Project) -> Desk:
    return Desk(project)


def changed(desk: Desk, monkeypatch: pytest.MonkeyPatch, rows: Callable[[DataFrame], Any]) -> None:
    """Let the group's pipeline give other rows from now on."""
    monkeypatch.setattr(pipelines, "keep", rows)
    desk.project = Project(desk.file, desk.project.instance)


def hundredfold(events: DataFrame) -> DataFrame:
    return events.selectExpr("n * 100 AS n", "_event.id AS event_id", "_event")


def test_windows_are_made_anew_and_live_cursors_stay(
    desk: Desk, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.publish(1, 2, hours_ago=1)
    desk.publish(3, 4)
    while (desk.project.tick().run_requests or []) and not desk.deliver():
        pass
