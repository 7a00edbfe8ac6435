"""`format("tierfs")` and `readStream.format("tierfs")`: the data source that Spark finds by this name.

Spark imports it in Python processes for schema, plan, tasks and commit, so that each method imports its own part:
a task of a read needs nothing here but the class.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tierfs.pipeline.spark.errors import explained, require_spark

NAME = "tierfs"


class TierfsDataSource(DataSource):
    """Segments of a store as data frames; see docs/spark.md."""

    _was_sent = False

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> StructType:
        """Return all columns of rows and of directories. Fails here for a store or path that does not exist."""
        with explained():
            from tierfs.pipeline.spark.options import STREAM_OPTIONS, ReadOptions
            from tierfs.pipeline.spark.planning import schema_of

            options = ReadOptions.of(self.options, STREAM_OPTIONS)  # Spark does not say here which kind of read it is
            if any(name in self.options for name in STREAM_OPTIONS):
                from tierfs.pipeline.spark.stream_options import Pace  # most reads have none of them

                Pace.of(self.options)
            return schema_of(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read, planned now: running it again reads the same bytes."""
        with explained():
            from tierfs.pipeline.spark.options import ReadOptions
            from tierfs.pipeline.spark.partitions import TierfsReader
            from tierfs.pipeline.spark.planning import plan_read

            options = ReadOptions.of(self.options)
            options.require_batch()
            if options.named.is_between:
                from tierfs.pipeline.spark.between import plan_between

                return TierfsReader(options.form, schema, plan_between(self.options, schema))
            return TierfsReader(options.form, schema, plan_read(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a stream of existing and future segments."""
        with explained():
            require_spark((4, 2), "reading a stream by name", "read the path of a mount: spark.readStream.text")
            from tierfs.pipeline.spark.stream_reader import TierfsStreamReader

            return TierfsStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch write, which begins now."""
        with explained():
            from tierfs.pipeline.spark.write_options import WriteOptions
            from tierfs.pipeline.spark.writer import TierfsWriter

            return TierfsWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return one batch of a stream: for its tasks, or, in a source sent to another process, for its commit."""
        with explained():
            require_spark(
                (4, 1), "writing a stream by name", "write its batches: foreachBatch, with txnAppId, txnVersion"
            )
            from tierfs.pipeline.spark.stream_writer import TierfsStreamWriter
            from tierfs.pipeline.spark.write_options import WriteOptions

            options = WriteOptions.of(self.options, stream=True)
            return TierfsStreamWriter(options, schema, overwrite=overwrite, commits=self._was_sent)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a source that Spark sent to where batches are committed; Spark makes a new one for their tasks."""
        self.__dict__.update(state)
        self._was_sent = True
