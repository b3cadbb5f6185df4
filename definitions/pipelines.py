"""What the shop's groups do with their events, where a query would not do."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

EURO_RATES = {"EUR": 1.0, "USD": 0.92, "GBP": 1.17, "CHF": 1.04}


def order_history(events: DataFrame) -> DataFrame:
    """One row for each order or cancellation, with the amount in euro."""
    is_order = F.col("_event.topic") == "orders.created"
    return events.select(
        "order_id",
        "customer",
        F.when(is_order, "placed").otherwise("cancelled").alias("status"),
        "amount",
        "currency",
        F.when(is_order, _in_euro("amount", "currency")).alias("amount_eur"),
        "reason",
        "placed_at",
        F.col("_event.id").alias("event_id"),
        F.col("_event.ts").alias("event_ts"),
    )


def revenue(payments: DataFrame) -> DataFrame:
    """What each payment brought in, in euro, by the day that it was made on."""
    return payments.select(
        F.to_date("paid_at").alias("day"),
        "payment_id",
        "order_id",
        "method",
        _in_euro("amount", "currency").alias("amount_eur"),
    )


def _in_euro(amount: str, currency: str) -> Column:
    """An amount in a currency that has no rate fails the batch: better no figure than a wrong
    one."""
    rates = F.create_map(*(F.lit(part) for pair in EURO_RATES.items() for part in pair))
    unknown = F.concat(F.lit("no euro rate for currency "), F.coalesce(currency, F.lit("(none)")))
    rate = F.coalesce(
        F.try_element_at(rates, F.col(currency)), F.raise_error(unknown).cast("double")
    )
    return F.round(F.col(amount) * rate, 2)
