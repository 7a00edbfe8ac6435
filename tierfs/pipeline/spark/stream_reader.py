"""`readStream.format("tierfs")` on the driver, which keeps the store open and decides the ends of batches.

Needs PySpark 4.2: before, Spark does not say where a batch begins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
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

from tierfs.app.store import Store
from tierfs.base.words.errors import Unavailable
from tierfs.pipeline.reader.planning import plan
from tierfs.pipeline.reader.selection import Tail
from tierfs.pipeline.reader.stream import Stream
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.reader.stream_shares import NO_LIMIT, Limits
from tierfs.pipeline.spark.errors import explained
from tierfs.pipeline.spark.partitions import ExecutorReader, TierfsPartition, connections
from tierfs.pipeline.spark.planning import finding_times, offload_tails, open_store, reach_of, require_schema
from tierfs.pipeline.spark.stream_options import Starting, StreamOptions

log = logging.getLogger(__name__)

# Minimum time between listings of a bucket: Spark asks an idle source a hundred times a second (a guess).
_REFRESH_S = 1.0

Offset = dict[str, Any]


class TierfsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for a query on the driver; executors get an ExecutorReader in its place.

    Nothing fails while it is made: Spark would hide the error in one of its own.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema
        self._opened: _Opened | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ExecutorReader, (self._schema,)

    def initialOffset(self) -> Offset:
        """Return the offset before everything, at a time, or after everything."""
        with explained():
            opened = self._open()
            start_ms = opened.options.read.bounds.start_ms
            if start_ms is not None:
                return opened.starting_at(start_ms).as_json()
            if opened.options.pace.starting is Starting.LATEST:
                return opened.stream.latest().as_json()
            return opened.stream.earliest().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of maxBytesPerTrigger or maxFilesPerTrigger."""
        with explained():
            pace = StreamOptions.of(self._given).pace
            if pace.max_bytes is not None:
                return ReadMaxBytes(pace.max_bytes)
            return ReadAllAvailable() if pace.max_segments is None else ReadMaxFiles(pace.max_segments)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset after the next batch; `start` if there is nothing to read."""
        with explained():
            opened = self._open()
            opened.refresh()
            # A limit of Spark is one of bytes or of files; the options may have both, unless Spark wants everything.
            pace = None if isinstance(limit, ReadAllAvailable) else opened.options.pace
            limits = NO_LIMIT if pace is None else Limits(pace.max_bytes, pace.max_segments)
            return opened.stream.next_offset(StreamOffset.of(start), limits).as_json()

    def reportLatestOffset(self) -> Offset:
        """Return the store's present end, for the query's progress."""
        with explained():
            return self._open().stream.reaches().as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than the store's present end."""
        with explained():
            opened = self._open()
            opened.refresh()
            opened.stream.freeze()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the ranges between two offsets, as tasks."""
        with explained():
            opened = self._open()
            place, pinned = opened.stream.pinned(StreamOffset.of(start), StreamOffset.of(end))
            read = opened.options.read
            if opened.columns.of_record:
                pinned = [replace(pin, facts=opened.columns.facts(pin.segment)) for pin in pinned]
            return [TierfsPartition((read.form, place, part)) for part in plan(pinned, read.sizes, reach_of(read))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition; executors do it by an ExecutorReader."""
        return ExecutorReader(self._schema).read(partition)

    def stop(self) -> None:
        """Close the store."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _open(self) -> _Opened:
        if self._opened is None:
            options = StreamOptions.of(self._given)
            store = open_store(options.read.where)
            try:
                self._opened = _Opened(options, store, self._schema)
            except BaseException:
                store.close()
                raise
        return self._opened


class _Opened:
    """The store of a running query."""

    def __init__(self, options: StreamOptions, store: Store, schema: StructType) -> None:
        """Raises InvalidRequest for a column that is not there."""
        self.options = options
        with store.metadata.read() as txn:
            self.columns = require_schema(txn, options.read, schema)
        self._store = store
        settings, read = store.settings.cold, options.stream_read()
        self.stream = Stream(store.metadata, str(store.path), settings, connections(), read)
        self._offloaded = -1
        """The transaction before the last offload."""
        self._refreshed_s = time.monotonic()

    def refresh(self) -> None:
        """Take in what is new in the bucket, and offload what is not there, if wanted.

        A bucket that does not answer ends no query: bytes already listed are read meanwhile.
        """
        store = self._store
        now_s = time.monotonic()
        if store.is_replica and now_s - self._refreshed_s >= _REFRESH_S:
            from tierfs.app.replica import refresh_source  # what only a replica needs, as in app.sources

            self._refreshed_s = now_s
            try:
                refresh_source(store)
            except Unavailable as exc:
                log.warning("no new data is read: %s", exc)
        elif self.options.read.tail is Tail.OFFLOAD and not store.is_replica:
            transaction = store.metadata.last_transaction_id()
            if transaction != self._offloaded:
                offload_tails(store, self.options.read)
                self._offloaded = transaction

    def starting_at(self, time_ms: int) -> StreamOffset:
        """Return the offset before the first records of a time or later, where a batch begins too."""
        with finding_times(self._store, self.options.read) as place_in:
            return self.stream.starting_at(lambda path, segment: place_in(path, segment, time_ms).offset)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
