"""`format("tierfs")`: the data source that Spark finds by this name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tierfs.spark.errors import explained
from tierfs.spark.options import ReadOptions
from tierfs.spark.partitions import TierfsPartition, read_partition
from tierfs.spark.planning import check, plan_read
from tierfs.spark.schemas import default_schema, require_columns
from tierfs.spark.stream_options import STREAM_OPTIONS, Pace
from tierfs.spark.stream_writer import TierfsStreamWriter
from tierfs.spark.streaming import TierfsStreamReader
from tierfs.spark.write_options import WriteOptions
from tierfs.spark.writer import TierfsWriter

NAME = "tierfs"


class TierfsDataSource(DataSource):
    """Segments of a store as data frames; see docs/spark.md."""

    _was_sent = False

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """All columns of the type of row that was asked for. Fails here for a store or path that does not exist."""
        with explained():
            options = ReadOptions.of(self.options, STREAM_OPTIONS)  # Spark does not say here which kind of read it is
            Pace.of(self.options)
            check(options)
            return default_schema(options.row_type)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read, planned now: whoever runs it again reads the same bytes."""
        with explained():
            return TierfsReader(ReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of what is there and of what comes."""
        return TierfsStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write, which begins now."""
        with explained():
            return TierfsWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """One batch of a stream: for its tasks, or, of a source that was sent to another process, for its commit."""
        with explained():
            options = WriteOptions.of(self.options, stream=True)
            return TierfsStreamWriter(options, schema, overwrite=overwrite, commits=self._was_sent)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Spark sends a source to where its batches are committed, and makes a new one for their tasks."""
        self.__dict__.update(state)
        self._was_sent = True


class TierfsReader(DataSourceReader):
    """Plans on the driver; reads on executors, where it arrives without the plan."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises what is wrong with the store, the paths or the columns."""
        require_columns(options.row_type, schema)
        self._options = options
        self._schema = schema
        planned = plan_read(options)
        self._place = planned.place
        self._planned = [TierfsPartition(one) for one in planned.partitions]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planned": []}  # Spark sends each partition by itself

    def partitions(self) -> list[InputPartition]:
        """The plan; Spark makes one empty partition of an empty list."""
        return list(self._planned)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Batches of one partition."""
        if partition.value is None:
            return
        with explained():
            yield from read_partition(self._options, self._place, self._schema, partition.value)
