"""`format("tierfs")` and `readStream.format("tierfs")`: the data source that Spark finds by this name.

The driver's side of a stream keeps the store open and decides the ends of batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tierfs.app.sources import refresh_source
from tierfs.app.store import Store
from tierfs.errors import Unavailable
from tierfs.scan.planning import plan
from tierfs.scan.selection import Tail
from tierfs.scan.stream import Stream
from tierfs.scan.stream_plan import StreamOffset
from tierfs.spark.errors import explained
from tierfs.spark.options import STREAM_OPTIONS, Pace, ReadOptions, Starting, StreamOptions
from tierfs.spark.partitions import TierfsPartition, connections, default_schema, read_partition, require_columns
from tierfs.spark.planning import check, offload_tails, open_store, plan_read, reach_of
from tierfs.spark.write_options import WriteOptions
from tierfs.spark.writer import TierfsStreamWriter, TierfsWriter

log = logging.getLogger(__name__)

_REFRESH_S = 1.0
"""Minimum time between listings of a bucket: Spark asks an idle source a hundred times a second (a guess)."""

Offset = dict[str, Any]


class TierfsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for a query on the driver; executors get a copy that never opened the store.

    Nothing fails while it is made: Spark would hide the error in one of its own.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(given)
        self._schema = schema
        self._opened: _Opened | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> Offset:
        """Return the offset before everything, or after it."""
        with explained():
            opened = self._open()
            if opened.options.pace.starting is Starting.LATEST:
                return opened.stream.latest().as_json()
            return opened.stream.earliest().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of maxBytesPerTrigger."""
        with explained():
            limit = StreamOptions.of(self._given).pace.max_bytes
            return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset after the next batch; `start` if there is nothing to read."""
        with explained():
            opened = self._open()
            opened.refresh()
            limit_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
            return opened.stream.next_offset(StreamOffset.of(start), limit_bytes).as_json()

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
        """Return the stretches between two offsets, as tasks."""
        with explained():
            opened = self._open()
            place, pinned = opened.stream.pinned(StreamOffset.of(start), StreamOffset.of(end))
            read = opened.options.read
            return [TierfsPartition((read, place, one)) for one in plan(pinned, read.sizes, reach_of(read))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition, on an executor."""
        with explained():
            options, place, value = partition.value  # options are not read here: a path may name a store elsewhere
            yield from read_partition(options, place, self._schema, value)

    def stop(self) -> None:
        """Close the store."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _open(self) -> _Opened:
        if self._opened is None:
            options = StreamOptions.of(self._given)
            require_columns(options.read.row_type, self._schema)
            self._opened = _Opened(options, open_store(options.read.where))
        return self._opened


class _Opened:
    """The store of a running query."""

    def __init__(self, options: StreamOptions, store: Store) -> None:
        self.options = options
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
            self._refreshed_s = now_s
            try:
                refresh_source(store)
            except Unavailable as exc:
                log.warning("nothing new is read: %s", exc)
        elif self.options.read.tail is Tail.OFFLOAD and not store.is_replica:
            transaction = store.metadata.last_transaction_id()
            if transaction != self._offloaded:
                offload_tails(store, self.options.read)
                self._offloaded = transaction

    def close(self) -> None:
        """Close the store."""
        self._store.close()


NAME = "tierfs"


class TierfsDataSource(DataSource):
    """Segments of a store as data frames; see docs/spark.md."""

    _was_sent = False

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> StructType:
        """Return all columns of the requested type of row. Fails here for a store or path that does not exist."""
        with explained():
            options = ReadOptions.of(self.options, STREAM_OPTIONS)  # Spark does not say here which kind of read it is
            Pace.of(self.options)
            check(options)
            return default_schema(options.row_type)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read, planned now: running it again reads the same bytes."""
        with explained():
            return TierfsReader(ReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a stream of existing and future segments."""
        return TierfsStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch write, which begins now."""
        with explained():
            return TierfsWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return one batch of a stream: for its tasks, or, in a source sent to another process, for its commit."""
        with explained():
            options = WriteOptions.of(self.options, stream=True)
            return TierfsStreamWriter(options, schema, overwrite=overwrite, commits=self._was_sent)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a source that Spark sent to where batches are committed; Spark makes a new one for their tasks."""
        self.__dict__.update(state)
        self._was_sent = True


class TierfsReader(DataSourceReader):
    """Plans on the driver; reads on executors, where it arrives without the plan."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises the error of the store, the paths or the columns."""
        require_columns(options.row_type, schema)
        self._options = options
        self._schema = schema
        planned = plan_read(options)
        self._place = planned.place
        self._planned = [TierfsPartition(one) for one in planned.partitions]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planned": []}  # Spark sends each partition by itself

    def partitions(self) -> list[InputPartition]:
        """Return the plan; Spark makes one empty partition of an empty list."""
        return list(self._planned)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition."""
        if partition.value is None:
            return
        with explained():
            yield from read_partition(self._options, self._place, self._schema, partition.value)
