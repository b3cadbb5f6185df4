"""What the shop does with its events."""

import os
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def price(orders: DataFrame) -> DataFrame:
    """An amount that is no number fails the whole batch."""
    return orders.select(
        "n", F.col("amount").cast("int").alias("amount"), F.col("_event.id").alias("event_id")
    )


def keep(events: DataFrame) -> DataFrame:
    return events.select("n", F.col("_event.id").alias("event_id"))


def explode(events: DataFrame) -> DataFrame:
    return events.select(F.raise_error(F.lit("boom")).cast("bigint").alias("n"))


def hang_once(events: DataFrame, mark: str = "to-be-killed") -> DataFrame:
    """The first run says who it is, and waits for its end."""
    if not Path(mark).exists():
        Path(mark).write_text(str(os.getpid()))
        time.sleep(300)
    return keep(events)


def hang_once_more(events: DataFrame) -> DataFrame:
    return hang_once(events, "to-be-cancelled")
