"""A web shop as it is shown in the documents, with a real `dagster dev` in it.

Orders become a table, the table's rows events, and these another table. Some orders cannot be done.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import polars as pl
import pytest

from dagster_bus import Bus, Message
from dagster_bus.core.store import Tally
from dagster_bus.orchestration.dev import DagsterDev
from tests.support.dagster_dev import free_ports, group_is_gone, wait_for

TOPICS = """\
    version: 1
    store: sqlite:///bus.db

    spark:
      master: local[1]
      conf: {{spark.ui.enabled: false, spark.sql.shuffle.partitions: 1}}

    retry_policies:
      once: {{max_attempts: 1}}

    topics:
      orders.created:
        description: One event for each order placed in the shop.
        owners: [team:shop]
        partitions: 2
        schema:
          fields:
            order_id: string not null
            country: string
            currency: string
            amount: decimal(12,2)

      orders.enriched:
        description: Orders with their amount in euro.
        owners: [team:shop]
        partitions: 2
        schema:
          fields: {{order_id: string, country: string, amount_eur: "decimal(12,2)"}}

    groups:
      enriched-orders:
        description: Every order of the shop, with its amount in euro.
        owners: [team:shop]
        topics: [orders.created]
        retry: once
        window: {{cron: "0 * * * *", start: "{start}"}}
        pipeline: shop.pipelines:enrich
        expect: {{is_paid: amount_eur > 0}}
        table: {{path: data/enriched_orders}}
        publish: orders.enriched

      daily-revenue:
        description: What the shop earns, by day and country.
        owners: [team:analytics]
        topics: [orders.enriched]
        retry: once
        window: {{cron: "0 0 * * *", start: "{start}"}}
        sql: SELECT order_id, country, amount_eur FROM events
        table: {{path: data/daily_revenue}}
    """

PIPELINES = '''\
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    EURO_RATES = {"EUR": 1.0, "USD": 0.92, "GBP": 1.17, "CHF": 1.04}


    def enrich(orders: DataFrame) -> DataFrame:
        """An order in a currency without a rate fails: better no figure than a wrong one."""
        rates = F.create_map(*(F.lit(part) for pair in EURO_RATES.items() for part in pair))
        no_rate = F.concat(F.lit("no euro rate for currency "), "currency")
        rate = F.coalesce(
            F.try_element_at(rates, F.col("currency")), F.raise_error(no_rate).cast("double")
        )
        amount_eur = (F.col("amount") * rate).cast("decimal(12,2)").alias("amount_eur")
        return orders.select("order_id", "country", amount_eur, "_event")
    '''

INIT = """\
    from dagster_bus import load_definitions

    defs = load_definitions("topics.yaml")
    """

GOOD = [
    ("DE", "EUR", "24.90"),
    ("FR", "EUR", "61.00"),
    ("US", "USD", "100.00"),
    ("GB", "GBP", "18.50"),
    ("CH", "CHF", "75.25"),
    ("DE", "EUR", "9.99"),
    ("IT", "EUR", "42.40"),
    ("US", "USD", "12.75"),
]
MISSPELT = [("ES", "EURO", "33.00"), ("PT", "EURO", "47.80")]
UNPAID = [("DE", "EUR", "0.00")]
ORDERS = [
    {"order_id": f"A-{1001 + n}", "country": country, "currency": currency, "amount": amount}
    for n, (country, currency, amount) in enumerate([*GOOD, *MISSPELT, *UNPAID])
]
DONE = [order["order_id"] for order in ORDERS[: len(GOOD)]]
MISSPELT_ORDERS = [order["order_id"] for order in ORDERS[len(GOOD) : -len(UNPAID)]]


class Gallery:
    """The shop, running, with its first orders done and its letters dead."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def bus(self) -> Bus:
        return Bus.open(self.folder / "topics.yaml")

    def tally(self, group: str) -> Tally:
        with self.bus() as bus:
            return bus.group(group).progress().tally

    def table(self, name: str) -> pl.DataFrame:
        """A table as an independent reader sees it."""
        return pl.read_delta(str(self.folder / "data" / name)).sort("order_id")

    def orders_in(self, name: str) -> list[str]:
        found: list[str] = self.table(name)["order_id"].to_list()
        return found


@pytest.fixture(scope="session")
def gallery(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    folder = tmp_path_factory.mktemp("gallery")
    (folder / "shop").mkdir()
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT00:00:00Z}"
    for name, text in {
        "topics.yaml": dedent(TOPICS).format(start=yesterday),
        "shop/pipelines.py": dedent(PIPELINES),
        "shop/__init__.py": dedent(INIT),
        "workspace.yaml": "load_from: [{python_module: shop}]",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    with Bus.open(folder / "topics.yaml") as bus:
        an_hour_ago = int((datetime.now(UTC) - timedelta(hours=1)).timestamp() * 1000)
        bus.publish_many("orders.created", [_message(order, an_hour_ago) for order in ORDERS])
    with DagsterDev(folder, folder / "dagster", port=free_ports(1)[0]) as dagster:
        pid = dagster.pid
        shown = Gallery(folder, dagster.url)
        wait_for("revenue", lambda: shown.tally("daily-revenue").settled == len(GOOD))
        yield shown
    wait_for("end of all that Dagster started", lambda: group_is_gone(pid), seconds=10)


def _message(order: dict[str, str], ts: int) -> Message:
    """All of them in one window, and in one batch."""
    return Message(order, key=order["order_id"], source="shop", ts=ts)
