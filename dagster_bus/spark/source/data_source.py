"""What Spark knows the bus by: its name, its columns, and who reads and writes.

Spark starts a process for each question that it asks on the driver, so that only what the question
needs is imported.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dagster_bus.spark.source.columns import ENVELOPE, Shape, ddl, typed_columns
from dagster_bus.spark.source.options import Options
from dagster_bus.spark.source.places import chosen_topics
from dagster_bus.spark.source.reading import BusReader, batch_query, patterns
from dagster_bus.stores import open_store

FORMAT = "dagster_bus"


class BusDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(self._columns())

    def reader(self, schema: StructType) -> DataSourceReader:
        return BusReader(batch_query(self._options), Shape(schema, self._columns()))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from dagster_bus.spark.source.writing import WRITING, BusWriter, target

        return BusWriter(target(self._options, schema, overwrite, WRITING))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from dagster_bus.spark.source.streaming import BusStreamReader, stream_query

        asked, most = stream_query(self._options)
        return BusStreamReader(asked, Shape(schema, self._columns()), most)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from dagster_bus.spark.source.writing import STREAM_WRITING, BusStreamWriter, target

        return BusStreamWriter(target(self._options, schema, overwrite, STREAM_WRITING))

    @property
    def _options(self) -> Options:
        return Options(self.options)

    def _columns(self) -> dict[str, str]:
        options = self._options
        if not options.flag("typed", False):
            return ENVELOPE
        with open_store(options.store(), create=False) as store:
            return typed_columns(chosen_topics(patterns(options), store))
