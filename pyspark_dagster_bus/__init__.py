"""Makes `spark.read.format("dagster_bus")` work in any session, without a call.

Spark imports every top-level package whose name begins with `pyspark_`, for its DefaultSource.
A package that cannot be imported would take all other such sources down with it: without the
libraries that the bus needs for Spark there is none here.
"""

try:
    from dagster_bus.spark.source import BusDataSource as DefaultSource
except ModuleNotFoundError:
    pass
else:
    __all__ = ["DefaultSource"]
