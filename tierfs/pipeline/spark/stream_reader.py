"""`readStream.format("tierfs")` on the driver, which keeps the store open and decides the ends of batches.

Needs PySpark 4.2: before, Spark does not say where a batch begins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.reader.stream_shares import NO_LIMIT, Limits
from tierfs.pipeline.spark.errors import explained
from tierfs.pipeline.spark.opened_stream import OpenedStream
from tierfs.pipeline.spark.partitions import ExecutorReader, TierfsPartition
from tierfs.pipeline.spark.planning import open_store
from tierfs.pipeline.spark.stream_options import StreamOptions

Offset = dict[str, Any]


class TierfsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for a query on the driver; executors get an ExecutorReader in its place.

    Nothing fails while it is made: Spark would hide the error in one of its own.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema
        self._opened: OpenedStream | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ExecutorReader, (self._schema,)

    def initialOffset(self) -> Offset:
        """Return the offset before everything, at a time, or after everything."""
        with explained():
            return self._open().first_offset().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of maxBytesPerTrigger or maxFilesPerTrigger; one that limits nothing for a minimum alone."""
        with explained():
            pace = StreamOptions.of(self._given).pace
            if pace.max_bytes is not None:
                return ReadMaxBytes(pace.max_bytes)
            if pace.max_segments is not None:
                return ReadMaxFiles(pace.max_segments)
            return ReadMaxBytes(sys.maxsize) if pace.min_bytes else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset after the next batch; `start` if there is nothing to read."""
        with explained():
            opened = self._open()
            opened.refresh()
            # A limit of Spark is one of bytes or of files; the options may have both, unless Spark wants everything.
            pace = None if isinstance(limit, ReadAllAvailable) else opened.options.pace
            limits = NO_LIMIT if pace is None else Limits(pace.max_bytes, pace.max_segments)
            least_bytes = 0 if pace is None else opened.small.least_bytes()
            begin = StreamOffset.of(start)
            end = opened.next_offset(begin, limits, least_bytes)
            if end != begin:
                opened.small.start_batch()
            return end.as_json()

    def reportLatestOffset(self) -> Offset:
        """Return the store's present end with the lag and rates, for the query's progress."""
        with explained():
            return self._open().progress()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than the store's present end."""
        with explained():
            opened = self._open()
            opened.refresh()
            opened.stream.freeze()
            opened.small.end()  # too little will never be more

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the ranges between two offsets, as tasks."""
        with explained():
            opened = self._open()
            form, planned = opened.options.read.form, opened.between(StreamOffset.of(start), StreamOffset.of(end))
            return [TierfsPartition((form, planned.place, part)) for part in planned.partitions]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition; executors do it by an ExecutorReader."""
        return ExecutorReader(self._schema).read(partition)

    def stop(self) -> None:
        """Close the store."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _open(self) -> OpenedStream:
        if self._opened is None:
            options = StreamOptions.of(self._given)
            store = open_store(options.read.where)
            try:
                self._opened = OpenedStream(options, store, self._schema)
            except BaseException:
                store.close()
                raise
        return self._opened
