"""A stream over an open store: for a query of Spark, for a batch between two offsets, and for a job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructType

from tierfs.app.store import Store
from tierfs.base.words.errors import Archived, InvalidRequest, Unavailable
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.pipeline.reader.planning import plan
from tierfs.pipeline.reader.selection import Tail
from tierfs.pipeline.reader.stream import Stream
from tierfs.pipeline.reader.stream_lag import StreamRates
from tierfs.pipeline.reader.stream_plan import NEW_CHECKPOINT, ListedSegment, StartPlace, StreamOffset
from tierfs.pipeline.reader.stream_shares import Limits
from tierfs.pipeline.spark.archived import ArchivedObjects, reads_bytes
from tierfs.pipeline.spark.partitions import connections
from tierfs.pipeline.spark.planning import (
    PlaceIn,
    ReadPlan,
    finding_times,
    offload_tails,
    reach_of,
    require_schema,
)
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.stream_options import StreamOptions

log = logging.getLogger(__name__)

# Minimum time between listings of a bucket: Spark asks an idle source a hundred times a second (a guess).
_REFRESH_S = 1.0


def offset_in(option: str, saved: Mapping[str, object], options: StreamOptions) -> StreamOffset:
    """Return the offset of a stream that an option has. Raises InvalidRequest for one of another read."""
    try:
        offset = StreamOffset.of(saved)
        offset.require_read(options.stream_read().name)
    except InvalidRequest as exc:
        ours = NEW_CHECKPOINT not in (exc.remedy or "")
        raise InvalidRequest(
            str(exc).replace("the checkpoint", option),
            remedy=exc.remedy if ours else "use the endOffset of a stream with the same paths and options",
        ) from exc
    return offset


class SmallBatches:
    """Holds batches back until enough is unread, or the last one was long ago, as Spark's source of Kafka does."""

    def __init__(self, min_bytes: int, max_delay_s: float, clock: Callable[[], float]) -> None:
        """The first batch is not held back: when the last one of another process was is not known."""
        self._min_bytes = min_bytes
        self._max_delay_s = max_delay_s
        self._clock = clock
        self._started_s: float | None = None

    def least_bytes(self) -> int:
        """Return the bytes that a batch has to have now."""
        if self._started_s is None or self._clock() - self._started_s >= self._max_delay_s:
            return 0
        return self._min_bytes

    def start_batch(self) -> None:
        """Count the delay from now."""
        self._started_s = self._clock()

    def end(self) -> None:
        """Hold back no batch from now on."""
        self._min_bytes = 0


class OpenedStream:
    """The store of a running query or job, and the stream over it."""

    def __init__(self, options: StreamOptions, store: Store, schema: StructType) -> None:
        """Raises InvalidRequest for a column that is not there."""
        self.options = options
        with store.metadata.read() as txn:
            self.columns = require_schema(txn, options.read, schema)
        self._store = store
        self._archived = ArchivedObjects(store, options.read.archive)
        self._reads_bytes = reads_bytes(options.read.row_type, schema.names)
        settings, read = store.settings.cold, options.stream_read()
        self.stream = Stream(store.metadata, str(store.path), settings, connections(), read)
        self.small = SmallBatches(options.pace.min_bytes, options.pace.max_delay_s, time.monotonic)
        self._rates = StreamRates()
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

    def first_offset(self) -> StreamOffset:
        """Return the offset before everything, at offsets or times by segment, or where another query was."""
        read = self.options.read
        if read.named.saved is not None:
            return offset_in("startingOffsets", read.named.saved, self.options)
        if read.bounds.start_ms is None and read.named.start is None and read.named.start_ms is None:
            return self.stream.earliest()
        seen: list[str] = []
        cuts_times = read.bounds.cuts_times or read.named.cuts_times
        with finding_times(self._store, read) if cuts_times else nullcontext() as place_in:

            def place_of(listed: ListedSegment, segment: SegmentRecord) -> StartPlace:
                seen.append(listed.path)
                return self._beginning(listed, segment, place_in)

            first = self.stream.starting_at(place_of)
        for named in read.named.given:
            named.require_used(seen)
        return first

    def _beginning(self, listed: ListedSegment, segment: SegmentRecord, place_in: PlaceIn | None) -> StartPlace:
        """Return where the stream starts in a segment. Raises the errors of a wrong position, and of reads."""
        read, named = self.options.read, self.options.read.named
        start_ms = read.bounds.start_ms if named.start_ms is None else named.start_ms.of(listed.path)
        if start_ms is not None and place_in is not None:
            place = place_in(listed.path, segment, start_ms)
            named.require_time(listed.path, place.time_ms)
            return StartPlace(place.offset)
        position = None
        if named.start is not None:
            position = named.start.position(listed.path, listed.start, listed.length, tolerant=named.tolerant)
        is_entry = read.row_type in (RowType.ENTRIES, RowType.MESSAGES)
        return StartPlace(listed.start if position is None else position, is_entry=is_entry)

    def next_offset(self, start: StreamOffset, limits: Limits, least_bytes: int) -> StreamOffset:
        """Return the offset after the next batch: see Stream.next_offset.

        Where a line ends is read here. If that is archived, all unread bytes are waited for, if the stream waits.
        """
        try:
            return self.stream.next_offset(start, limits, least_bytes)
        except Archived:
            if not self.options.read.archive.waits:
                raise
        _, unread = self.stream.pinned(start, self.stream.next_offset(start))
        self._archived.require_readable(unread)
        return self.stream.next_offset(start, limits, least_bytes)

    def progress(self) -> dict[str, Any]:
        """Return the store's end as an offset, with what the stream reads, and how far and how fast it is."""
        end, lag = self.stream.reaches()
        rate = self._rates.note(end.bytes, end.bytes - lag.size_bytes)
        behind: dict[str, Any] = {"bytes": lag.size_bytes, "segments": lag.segments}
        if lag.entries:
            behind["entries"] = lag.entries
        if lag.largest:
            behind["largest"] = {"bytes": lag.largest_bytes, "segment": lag.largest}
        rates = {
            "appendedBytesPerSecond": round(rate.appended, 1),
            "overSeconds": round(rate.over_s, 1),
            "readBytesPerSecond": round(rate.read, 1),
        }
        read = self.options.read
        description = f"{end.read} in {read.where.store or self._store.path}"
        return end.as_json() | {"description": description, "lag": behind, "rates": rates}

    def between(self, start: StreamOffset, end: StreamOffset) -> ReadPlan:
        """Plan the ranges between two offsets, the same at each call. Raises DataLoss for bytes that are gone."""
        place, pinned = self.stream.pinned(start, end)
        while self._reads_bytes and self._archived.require_readable(pinned):
            place, pinned = self.stream.pinned(start, end)
        read = self.options.read
        if self.columns.of_record:
            pinned = [replace(pin, facts=self.columns.facts(pin.segment)) for pin in pinned]
        return ReadPlan(place, plan(pinned, read.sizes, reach_of(read)))

    def close(self) -> None:
        """Close the store."""
        self._store.close()
