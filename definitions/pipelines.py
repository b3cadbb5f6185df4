"""What the shop's groups do with their events."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

EURO_RATES = {"EUR": 1.0, "USD": 0.92, "GBP": 1.17, "CHF": 1.04}


def order_history(events: DataFrame) -> DataFrame:
    """One row for each order or cancellation, with the amount in euro.

    An order in a currency that has no rate fails the batch: better no figure than a wrong one."""
    rates = F.create_map(*(F.lit(part) for pair in EURO_RATES.items() for part in pair))
    rate = F.coalesce(
        F.try_element_at(rates, F.col("currency")),
        F.raise_error(
            F.concat(F.lit("no euro rate for currency "), F.coalesce("currency", F.lit("(none)")))
        ).cast("double"),
    )
    is_order = F.col("_event.topic") == "orders.created"
    return events.select(
        "order_id",
        "customer",
        F.when(is_order, "placed").otherwise("cancelled").alias("status"),
        "amount",
        "currency",
        F.when(is_order, F.round(F.col("amount") * rate, 2)).alias("amount_eur"),
        "reason",
        "placed_at",
        F.col("_event.id").alias("event_id"),
        F.col("_event.ts").alias("event_ts"),
    )
