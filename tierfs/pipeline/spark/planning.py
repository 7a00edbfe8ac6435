"""Plans a read on the driver: the store is opened, a snapshot pinned, and cut into partitions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from tierfs.app.sources import open_source
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, SegmentKind
from tierfs.engine.metadata import chains, entries
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.extents import ScannedStore
from tierfs.pipeline.reader.line_format import UNREAD_CODECS
from tierfs.pipeline.reader.planning import Partition, Reach, plan
from tierfs.pipeline.reader.selection import (
    PinnedSegment,
    Pinner,
    Tail,
    explain_nothing,
    place_of,
    select,
    selected_names,
    table_directories,
)
from tierfs.pipeline.spark.archived import ArchivedObjects, reads_bytes
from tierfs.pipeline.spark.columns import SegmentColumns, full_schema, require_columns
from tierfs.pipeline.spark.named_positions import NamedBounds
from tierfs.pipeline.spark.options import Bounds, ReadOptions, StoreOptions
from tierfs.pipeline.spark.partition_columns import PartitionTexts, inferred, require_values, texts_in, texts_of
from tierfs.pipeline.spark.row_types import RowType, SegmentRow

if TYPE_CHECKING:
    from tierfs.reading.times import TimePlace

# Segments in one partition of type `segments`.
_ROWS_PER_PARTITION = 20_000

# Returns the place of a time in the segment of a name.
PlaceIn = Callable[[str, SegmentRecord, int], "TimePlace"]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The work of the executors."""

    place: ScannedStore
    partitions: list[Partition] | list[tuple[SegmentRow, ...]]


def open_store(where: StoreOptions) -> Store:
    """Open the store of a read; the caller closes it."""
    return open_source(where.store, endpoint_url=where.endpoint_url, region=where.region, profile=where.profile)


def schema_of(options: ReadOptions) -> StructType:
    """Return all columns of a read. Raises the error of the store, of a path, or of the directories' names."""
    with open_store(options.where) as store, store.metadata.read() as txn:
        texts = directory_texts(txn, options)
    return full_schema(options.row_type, {column: inferred(values) for column, values in texts.items()})


def directory_texts(txn: ReadTransaction, options: ReadOptions) -> PartitionTexts:
    """Return the columns of the directories in the names of all segments selected, with their different values."""
    directories = table_directories(txn, options.selection, options.base)
    return {} if options.selection.recursive else texts_of(directories)


def require_schema(txn: ReadTransaction, options: ReadOptions, schema: StructType) -> SegmentColumns:
    """Return the columns of segments in a schema. Raises InvalidRequest for one that is not there, or of another type.

    Every column may be one of directories while there are none.
    """
    require_columns(options.row_type, schema)
    columns = SegmentColumns.of(options.row_type, schema)
    if columns.of_directories:
        names = [name for name, _ in selected_names(txn, options.selection)]
        if names:
            require_values(options.row_type, schema, texts_in(names), options.zone)
    return columns


def plan_read(options: ReadOptions, schema: StructType | None = None) -> ReadPlan:
    """Plan partitions of everything selected, as the store is now. With tail=offload bytes are uploaded first."""
    schema = full_schema(options.row_type, {}) if schema is None else schema
    with open_store(options.where) as store:
        with store.metadata.read() as txn:
            columns = require_schema(txn, options, schema)
        if options.row_type is RowType.SEGMENTS:
            return _plan_of_records(store, options)
        if options.tail is Tail.OFFLOAD and not store.is_replica:
            offload_tails(store, options)
        archived, reads = ArchivedObjects(store, options.archive), reads_bytes(options.row_type, schema.names)
        while True:
            with _no_cycles():
                place, pinned = _all_pinned(store, options, columns)
                partitions = plan(pinned, options.sizes, reach_of(options))
            if not partitions:
                with store.metadata.read() as txn:
                    explain_nothing(txn, options.selection)
            if not reads or not archived.require_readable(pinned):
                return ReadPlan(place, partitions)


def _plan_of_records(store: Store, options: ReadOptions) -> ReadPlan:
    with store.metadata.read() as txn:
        rows = list(_segment_rows(txn, options))
        if not rows:
            explain_nothing(txn, options.selection)
        return ReadPlan(place_of(txn, str(store.path), store.settings.cold), rows)


def _all_pinned(
    store: Store, options: ReadOptions, columns: SegmentColumns
) -> tuple[ScannedStore, list[PinnedSegment]]:
    """Pin everything selected, as the store is now. Raises what the options and reading raise."""
    with store.metadata.read() as txn:
        cuts_times = options.bounds.cuts_times or options.named.cuts_times
        with finding_times(store, options) if cuts_times else nullcontext() as place_in:
            pinned = list(_pinned(txn, options, columns, place_in))
        for named in options.named.given:
            named.require_used(pin.path for pin in pinned)
        return place_of(txn, str(store.path), store.settings.cold), pinned


def offload_tails(store: Store, options: ReadOptions) -> None:
    """Make every selected byte cold. Raises what offloading raises."""
    from tierfs.upkeep.holder.perform import perform
    from tierfs.upkeep.holder.verbs import OFFLOAD

    with store.metadata.read() as txn:
        selected = select(txn, options.selection)
        waiting = [path for path, segment in selected if chains.cold_end(txn, segment) < segment.length]
    for path in waiting:
        perform(store, OFFLOAD, path)


def reach_of(options: ReadOptions) -> Reach:
    """Return the bytes a part needs beside its own."""
    if options.row_type is RowType.LINES:
        return options.lines.reach
    if options.row_type is RowType.BYTES:
        return Reach()
    if options.row_type is RowType.ROCKETMQ:
        return Reach(splits=False)  # each queue has a log of its own
    return Reach(cuts_at_entries=True)


def bounded(txn: ReadTransaction, segment: SegmentRecord, bounds: Bounds) -> ByteRange:
    """Return the bytes of a segment that the options select."""
    start, end = segment.start_offset, segment.length
    if segment.kind is SegmentKind.LEDGER and (bounds.start_entry is not None or bounds.end_entry is not None):
        start = _offset_of(txn, segment, bounds.start_entry or 0)
        end = segment.length if bounds.end_entry is None else _offset_of(txn, segment, bounds.end_entry)
    start = max(start, bounds.start_offset or 0)
    end = end if bounds.end_offset is None else min(end, bounds.end_offset)
    return ByteRange(min(start, segment.length), max(min(start, segment.length), end))


@contextmanager
def finding_times(store: Store, options: ReadOptions) -> Iterator[PlaceIn]:
    """Yield what finds times in segments: on the driver, by a few small reads in each, which share one reader.

    It raises InvalidRequest for rows of entries that have no times, and the errors of reads.
    """
    from tierfs.reading.times import (  # a plan without times needs none of the ledgers' forms
        offset_at,
        reading_segments,
    )

    with reading_segments(store.reader, options.priority) as reading:

        def place_in(path: str, segment: SegmentRecord, time_ms: int) -> TimePlace:
            place = offset_at(store.metadata, segment, time_ms, reading(segment))
            if options.row_type in (RowType.ENTRIES, RowType.MESSAGES) and place.entry_id is None:
                raise InvalidRequest(
                    f"the entries of {printable(path)} have no times: they are not Pulsar's",
                    remedy="use entry ids: startEntry, endEntry",
                )
            return place

        yield place_in


def _of_segment(txn: ReadTransaction, options: ReadOptions, path: str, segment: SegmentRecord) -> Bounds:
    """Return the bounds, with those that are given for the name of a segment. Raises as `NamedNumbers.position`."""
    bounds, named = options.bounds, options.named
    if not named.given:
        return bounds
    start_ms = bounds.start_ms if named.start_ms is None else named.start_ms.of(path)
    end_ms = bounds.end_ms if named.end_ms is None else named.end_ms.of(path)
    bounds = replace(bounds, start_ms=start_ms, end_ms=end_ms)
    of_entries = options.row_type in (RowType.ENTRIES, RowType.MESSAGES)
    within = _entry_ids(txn, segment) if of_entries else (segment.start_offset, segment.length)
    first, after = (
        None if bound is None else bound.position(path, *within, tolerant=named.tolerant)
        for bound in (named.start, named.end)
    )
    start, end = (bounds.start_entry, bounds.end_entry) if of_entries else (bounds.start_offset, bounds.end_offset)
    if first is not None:
        start = max(start or 0, first)
    if after is not None:
        end = after if end is None else min(end, after)
        end = max(end, start or 0)
    if of_entries:
        return replace(bounds, start_entry=start, end_entry=end)
    return replace(bounds, start_offset=start, end_offset=end)


def _entry_ids(txn: ReadTransaction, segment: SegmentRecord) -> tuple[int, int]:
    """Return the id of the first entry of a segment, and of the next one."""
    from tierfs.pipeline.reader.record_ends import entry_at  # a plan without offsets by name needs none of streams

    first = entry_at(txn, segment.id, segment.start_offset) if segment.start_offset else 0
    return first, entries.count(txn, segment.id)


def _in_segment(
    bounds: Bounds, path: str, segment: SegmentRecord, place_in: PlaceIn | None, named: NamedBounds
) -> Bounds:
    """Return the bounds in a segment, with its offsets or entries in place of times."""
    if place_in is None or not bounds.cuts_times:
        return bounds
    first = None if bounds.start_ms is None else place_in(path, segment, bounds.start_ms)
    if first is not None:
        named.require_time(path, first.time_ms)
    after = None if bounds.end_ms is None else place_in(path, segment, bounds.end_ms)
    start, end = bounds.start_offset or 0, bounds.end_offset
    start_entry, end_entry = bounds.start_entry, bounds.end_entry
    if first is not None and first.entry_id is not None:
        start_entry = max(start_entry or 0, first.entry_id)
    elif first is not None:
        start = max(start, first.offset)
    if after is not None and after.entry_id is not None:
        end_entry = after.entry_id if end_entry is None else min(end_entry, after.entry_id)
        end_entry = max(end_entry, start_entry or 0)
    elif after is not None:
        end = after.end_offset if end is None else min(end, after.end_offset)
    return replace(bounds, start_offset=start, end_offset=end, start_entry=start_entry, end_entry=end_entry)


def _offset_of(txn: ReadTransaction, segment: SegmentRecord, entry_id: int) -> int:
    placed = next(entries.placed(txn, segment.id, entry_id, entry_id + 1), None)
    return segment.length if placed is None else placed.range.start


def _pinned(
    txn: ReadTransaction, options: ReadOptions, columns: SegmentColumns, place_in: PlaceIn | None
) -> Iterator[PinnedSegment]:
    pinner = Pinner(txn, options.priority, options.tail)
    for path, segment in select(txn, options.selection):
        if options.row_type in (RowType.ENTRIES, RowType.MESSAGES) and segment.kind is not SegmentKind.LEDGER:
            raise InvalidRequest(
                f"segment {printable(path)} is not a ledger", remedy="read type lines or bytes, or specify only ledgers"
            )
        codec = options.lines.codec_of(path) if options.row_type is RowType.LINES else None
        if codec in UNREAD_CODECS.values():
            raise InvalidRequest(
                f"segment {printable(path)} has a name of a compressed file; tierfs does not read Hadoop's {codec}",
                remedy="set compression to none to read its bytes as lines, or leave it out by pathGlobFilter",
            )
        if codec is not None and (options.bounds.cuts_bytes or options.named.cuts(path)):
            raise InvalidRequest(
                f"segment {printable(path)} has a name of a compressed file, which can be read only from its start",
                remedy="omit startOffset, startingTimestamp and their ends, or set compression to none",
            )
        bounds = _of_segment(txn, options, path, segment)
        bounds = _in_segment(bounds, path, segment, place_in, options.named)
        pinned = _pin(txn, pinner, path, segment, reach_of(options), bounds)
        yield replace(pinned, facts=columns.facts(segment)) if columns.of_record else pinned


def _pin(
    txn: ReadTransaction, pinner: Pinner, path: str, segment: SegmentRecord, reach: Reach, bounds: Bounds
) -> PinnedSegment:
    """Pin the selected bytes of a segment, and those beside them: lines are whole wherever bounds are."""
    part = bounded(txn, segment, bounds)
    start = max(segment.start_offset, part.start - reach.before_bytes) if part else part.start
    end = min(segment.length, part.end + reach.behind_bytes) if part else part.end
    pinned = pinner.pin(path, segment, ByteRange(start, end), bounds.start_entry or 0, bounds.end_entry)
    return replace(pinned, part=part.intersect(pinned.range))


def _segment_rows(txn: ReadTransaction, options: ReadOptions) -> Iterator[tuple[SegmentRow, ...]]:
    rows = (SegmentRow(path, segment) for path, segment in select(txn, options.selection))
    while some := tuple(islice(rows, _ROWS_PER_PARTITION)):
        yield some


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Keep the cycle collector from walking over a growing plan: a quarter of the time (measured)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
