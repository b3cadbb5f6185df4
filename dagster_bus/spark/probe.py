"""Asks a Spark Connect server a query. `python -m dagster_bus.spark.probe`, with its address on
the standard input, where no list of processes shows the token.

In a process of its own, as a process that has talked to a server can't run a Spark itself.
"""

import sys

from dagster_bus.spark.connection import bypass_proxies


def main() -> None:
    from pyspark.sql import SparkSession

    bypass_proxies()
    builder: SparkSession.Builder = SparkSession.builder
    session = builder.config("spark.remote", sys.stdin.readline().strip()).getOrCreate()
    session.range(1).count()
    session.stop()


if __name__ == "__main__":
    main()
