"""A stream over the segments of a selection, as its driver sees it: first offset, latest, and stretches between.

As long as no transaction commits, a repeated call costs some microseconds. Used by one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ByteRange, ReadPriority
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.driver_reader import DriverReader, segment_of
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.fetching import ScannedLedger
from tierfs.pipeline.reader.line_format import LineFormat
from tierfs.pipeline.reader.record_ends import ByteEnds, EntryEnds, LineEnds, Unfinished, entry_offset, runs_of
from tierfs.pipeline.reader.selection import PinnedSegment, Pinner, Selection, Tail, place_of
from tierfs.pipeline.reader.stream_batch import StreamStretch, missing_bytes, stretches
from tierfs.pipeline.reader.stream_lag import Lag, lag_of
from tierfs.pipeline.reader.stream_listing import Listing, gone_elsewhere
from tierfs.pipeline.reader.stream_losses import overwritten, reconcile
from tierfs.pipeline.reader.stream_plan import (
    NEW_CHECKPOINT,
    Cutter,
    ListedSegment,
    StartPlace,
    StreamOffset,
    advance,
    beginning_at,
)
from tierfs.pipeline.reader.stream_shares import NO_LIMIT, Limits, Rounds, advance_fairly

log = logging.getLogger(__name__)

# What people can do about a loss; a job that has options of its own names those.
PASS_OVER = "set failOnDataLoss to false to continue without the lost data"
_REMEDY = f"{PASS_OVER}, or {NEW_CHECKPOINT}"

# Segments that a message names at most.
_NAMED = 5


class Records(StrEnum):
    """The records that a stream reads whole."""

    LINES = "lines"
    BYTES = "bytes"
    ENTRIES = "entries"
    LOG = "rocketmq"


@dataclass(frozen=True, slots=True)
class StreamRead:
    """Options of a stream's read."""

    name: str
    """As in the checkpoint."""
    selection: Selection
    records: Records
    lines: LineFormat = field(default_factory=LineFormat)
    cold_only: bool = False
    """Whether it ends before the bytes that are only in the store's directory."""
    priority: ReadPriority | None = None
    fail_on_data_loss: bool = True


class Stream:
    """One stream over an open store."""

    def __init__(
        self,
        metadata: MetadataStore,
        path: str,
        settings: ColdSettings,
        connections: PlaceConnections,
        read: StreamRead,
    ) -> None:
        """`path`: of the store."""
        self._metadata = metadata
        self._path = path
        self._settings = settings
        self._connections = connections
        self._read = read
        self._listing = Listing(read.selection, cold_only=read.cold_only, of_entries=self._of_entries)
        self._idle: tuple[int, StreamOffset] | None = None
        """A transaction in which nothing followed an offset."""
        self._few: tuple[int, StreamOffset] | None = None
        """A transaction in which too little followed an offset."""
        self._frozen: dict[int, ListedSegment] | None = None
        self._unfinished: Unfinished = {}
        self._rounds = Rounds()
        self._reached = self.earliest()
        """The end of the last batch."""
        self._told = set[str]()

    @property
    def _of_entries(self) -> bool:
        return self._read.records is Records.ENTRIES

    def earliest(self) -> StreamOffset:
        """Return the offset before everything."""
        return StreamOffset(self._metadata.store_id, self._read.name)

    def starting_at(self, place_of: Callable[[ListedSegment, SegmentRecord], StartPlace]) -> StreamOffset:
        """Return the offset before the first records at a place in each segment.

        Bytes that are only in the store's directory count too, so that they are not read once they are cold. Raises
        what `place_of` and reading raise.
        """
        start = self.earliest()
        listing = Listing(self._read.selection, cold_only=False, of_entries=self._of_entries)
        with self._metadata.read() as txn:
            pinner = Pinner(txn, self._read.priority, Tail.LOCAL)
            with DriverReader(txn, pinner, self._place(txn), self._connections) as reader:

                def place(listed: ListedSegment) -> StartPlace:
                    return place_of(listed, segment_of(txn, listed))

                return beginning_at(start, listing.at(txn, start), self._cutter(txn, reader), place)

    def freeze(self) -> None:
        """Read no further than the present end of the store."""
        with self._metadata.read() as txn:
            self._frozen = {segment.birth: segment for segment in self._listing.at(txn, self.earliest())}

    def next_offset(self, start: StreamOffset, limits: Limits = NO_LIMIT, least_bytes: int = 0) -> StreamOffset:
        """Return the offset after the next batch, within the limits or of one record of each segment that has any.

        `start` if there is none, or if less than `least_bytes` are unread.

        Raises DataLoss if something not yet read is gone, and what reading raises.
        """
        start.require_read(self._read.name)
        transaction, self._reached = self._metadata.last_transaction_id(), start
        if self._idle == (transaction, start) or (least_bytes and self._few == (transaction, start)):
            return start
        with self._metadata.read() as txn, self._reader(txn) as reader:
            before, listed = self._listing.known, self._listing.at(txn, start)
            elsewhere = gone_elsewhere(txn, start, listed)
            begin, lost = reconcile(start, listed, self._metadata.store_id, txn.store.next_id, before, elsewhere)
            self._report(lost)
            if begin.recovered != start.recovered:
                return begin  # a step of its own: positions go back, and no batch reads what lies between
            if self._frozen is not None:
                listed = tuple(self._as_frozen(listed, self._frozen))
            cutter = self._cutter(txn, reader)
            if least_bytes and lag_of(begin, listed, cutter, of_entries=self._of_entries).size_bytes < least_bytes:
                self._few = (txn.id, start)
                return start
            if limits.exist:
                end = advance_fairly(begin, listed, cutter, limits, self._rounds)
            else:
                end = advance(begin, listed, cutter)
            self._reached = end
            self._idle = (txn.id, start) if end == start else None
            return end

    def reaches(self) -> tuple[StreamOffset, Lag]:
        """Return the end of the store as last seen, to be shown, and what the last batch left unread before it.

        The bytes of the end are those that the stream will have read there: less those of the last batch's end they are
        the lag.
        """
        listed, since = self._listing.known, self._reached
        open_ends = {segment.birth: segment.end for segment in listed if not segment.complete}
        done = max((segment.birth for segment in listed), default=0)
        with self._metadata.read() as txn, self._reader(txn) as reader:
            lag = lag_of(since, listed, self._cutter(txn, reader), of_entries=self._of_entries)
        end = StreamOffset(self._metadata.store_id, self._read.name, done, open_ends, since.bytes + lag.size_bytes)
        return end, lag

    def pinned(self, start: StreamOffset, end: StreamOffset) -> tuple[ScannedStore, list[PinnedSegment]]:
        """Return the bytes between two offsets: the same at each call. Raises DataLoss for bytes that are gone."""
        end.require_read(self._read.name)
        with self._metadata.read() as txn, self._reader(txn) as reader:
            parts = stretches(start, end, self._listing.at(txn, start))
            missing = missing_bytes(start, end, parts, self._cutter(txn, reader))
            if missing:
                self._report([_missing(missing, start, end, parts)])
            self._report(overwritten(end, parts))
            pinner = self._pinner(txn)
            return self._place(txn), [self._pin(txn, pinner, part) for part in parts]

    def _place(self, txn: ReadTransaction) -> ScannedStore:
        return place_of(txn, self._path, self._settings)

    def _pinner(self, txn: ReadTransaction) -> Pinner:
        """Return a pinner that cuts nothing, as ends are positions already; moved bytes are an error."""
        priority = self._read.priority
        if priority is None and self._read.cold_only:
            priority = ReadPriority.OFFLOADED_ONLY
        return Pinner(txn, priority, Tail.LOCAL)

    def _pin(self, txn: ReadTransaction, pinner: Pinner, part: StreamStretch) -> PinnedSegment:
        segment = segment_of(txn, part.listed)
        if not self._of_entries:
            return pinner.pin(part.listed.path, segment, ByteRange(part.start, part.end))
        wanted = ByteRange(entry_offset(txn, segment.id, part.start), entry_offset(txn, segment.id, part.end))
        pinned = pinner.pin(part.listed.path, segment, wanted)
        # Its own rows, as some may have empty entries alone, and those of the blocks that are checked with its bytes.
        runs = {run.first_entry_id: replace(run, stored=b"") for run in runs_of(txn, segment.id, part.start, part.end)}
        runs |= {run.first_entry_id: run for run in (pinned.ledger.runs if pinned.ledger else ())}
        ledger = ScannedLedger(segment.id, tuple(runs[first] for first in sorted(runs)), part.start, part.end)
        return replace(pinned, ledger=ledger)

    def _as_frozen(self, listed: Sequence[ListedSegment], frozen: dict[int, ListedSegment]) -> Iterator[ListedSegment]:
        for segment in listed:
            then = frozen.get(segment.birth)
            if then is not None:
                yield replace(segment, sealed=then.sealed, end=min(segment.end, then.end))

    def _cutter(self, txn: ReadTransaction, reader: DriverReader) -> Cutter:
        if self._of_entries:
            return EntryEnds(txn)
        if self._read.records is Records.BYTES:
            return ByteEnds()
        if self._read.records is Records.LOG:
            from tierfs.pipeline.reader.log_messages import LogEnds  # which other types of rows do not need

            return LogEnds(reader.read)
        return LineEnds(self._read.lines, reader.read, self._unfinished)

    def _reader(self, txn: ReadTransaction) -> DriverReader:
        return DriverReader(txn, self._pinner(txn), self._place(txn), self._connections)

    def _report(self, lost: Sequence[str]) -> None:
        """Fail for the first loss, or report each one once."""
        if lost and self._read.fail_on_data_loss:
            more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            raise DataLoss(f"{lost[0]}{more}", remedy=_REMEDY)
        for text in lost:
            if text not in self._told:
                self._told.add(text)
                log.warning("%s", text)


def _missing(size_bytes: int, start: StreamOffset, end: StreamOffset, parts: Sequence[StreamStretch]) -> str:
    """Return the error of a batch that has other bytes than before."""
    present = {part.listed.birth for part in parts}
    gone = sorted(birth for birth in start.open.keys() | end.open.keys() if birth not in present)
    named = f", perhaps of segments {', '.join(map(str, gone[:_NAMED]))}" if gone else ""
    if size_bytes < 0:
        return f"a repeated batch has {-size_bytes} more bytes than before: a segment was unsealed meanwhile"
    return f"{size_bytes} bytes of a batch are missing{named}: a segment was deleted or truncated meanwhile"
