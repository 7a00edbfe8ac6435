"""The readers of batches and streams as Spark asks them, without Spark."""

from __future__ import annotations

import pickle
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from tierfs.pipeline.spark.columns import full_schema
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.source import TierfsDataSource
from tierfs.pipeline.spark.stream_reader import TierfsStreamReader


class Asked:
    """The reader of a stream as Spark asks it, without Spark: its batches one after the other, in another process."""

    def __init__(self, of: RowType = RowType.LINES, schema: str = "", **options: str) -> None:
        columns = StructType.fromDDL(schema) if schema else full_schema(of, {})
        self.reader = TierfsStreamReader({"type": of, **options}, columns)
        self.at = self.reader.initialOffset()

    def plan(self) -> bytes:
        """Pickle the reader and the partitions of the next batch."""
        start, limit = self.at, self.reader.getDefaultReadLimit()
        self.at = self.reader.latestOffset(start, limit)
        return pickle.dumps((self.reader, self.reader.partitions(start, self.at)))

    def rows(self) -> list[tuple[Any, ...]]:
        return read(self.plan())


def read(sent: bytes) -> list[tuple[Any, ...]]:
    """The rows of a batch, as tasks read them."""
    copy, partitions = pickle.loads(sent)
    return [tuple(row.values()) for one in partitions for batch in copy.read(one) for row in batch.to_pylist()]


def batch(of: RowType = RowType.LINES, **given: str) -> list[tuple[Any, ...]]:
    """The rows of a batch read, sorted."""
    schema = full_schema(of, {})
    source = TierfsDataSource(CaseInsensitiveDict({"type": of, **given}))  # type: ignore[arg-type]
    reader = source.reader(schema)
    return sorted(read(pickle.dumps((reader, reader.partitions()))))
