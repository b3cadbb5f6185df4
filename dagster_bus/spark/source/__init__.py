"""The bus as a Spark data source: `spark.read.format("dagster_bus")`, and the same for writing and
for streams.

Spark asks a data source twice: on the driver, what there is to do, and on the executors, to do it.
So the driver's part only plans, by options and by what the store says of its partitions; executors
open the store themselves, each for the time of one task.
"""

from dagster_bus.spark.source.data_source import FORMAT, BusDataSource
from dagster_bus.spark.source.splitting import PIECE

__all__ = ["FORMAT", "PIECE", "BusDataSource"]
