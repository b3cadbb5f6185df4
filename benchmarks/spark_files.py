"""What the log holds, as JSON files that Spark reads by itself.

Whole events are lines as `dagster-bus export` writes them, and their table has the event's id and
time beside the payload's columns; payloads alone are what a file without a log would hold.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.events import TOPIC
from dagster_bus.connectors.ndjson import to_line
from dagster_bus.core.bus import Bus
from dagster_bus.core.event import Event

COLUMNS = {"order_id": "string", "note": "string"}
DDL = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())


@dataclass(frozen=True)
class Form:
    """How an event is a line of JSON, and which columns are made of it."""

    name: str
    line: Callable[[Event], bytes]
    schema: str
    read: tuple[str, ...]
    """The table's columns, of lines that Spark has read,"""
    handed: tuple[str, ...]
    """and of events that the bus hands over."""

    def rows(self, spark: SparkSession, files: str) -> DataFrame:
        return spark.read.schema(self.schema).json(files).selectExpr(*self.read)

    def files(self, bus: Bus, folder: Path) -> str:
        """Several for each core, so that all of them work to the end."""
        folder.mkdir()
        with ExitStack() as opened:
            parts = range(2 * (os.cpu_count() or 1))
            files = [opened.enter_context((folder / f"{part}.json").open("wb")) for part in parts]
            for file, event in zip(cycle(files), bus.tail(TOPIC), strict=False):
                file.write(self.line(event) + b"\n")
        return str(folder)


EVENTS = Form(
    "events",
    to_line,
    f"event_id string, ts bigint, payload struct<{DDL}>",
    ("payload.*", "event_id AS id", "timestamp_millis(ts) AS ts"),
    (*COLUMNS, "_event.id", "_event.ts"),
)
PAYLOADS = Form(
    "payloads",
    lambda event: event.payload_json.encode(),
    DDL,
    ("*",),
    tuple(COLUMNS),
)
FORMS = {form.name: form for form in (EVENTS, PAYLOADS)}
