"""Finds the ends of records for streams: lines after their separators, entries by their rows, bytes anywhere.

Lines are found by reading backwards from the end, so that the driver reads little of what the executors read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ByteRange, SegmentId
from tierfs.engine.metadata import entries
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.line_format import BYTE_ORDER_MARK, LineFormat
from tierfs.pipeline.reader.stream_plan import Cut, ListedSegment

# First search for a separator, backwards or forwards; each further one is four times as long.
_FIRST_BYTES = 64 * 1024

# Bytes read at once if lines can be found only from the left.
_STEP_BYTES = 8 * MIB

ReadBytes = Callable[[ListedSegment, ByteRange], bytes]

# Position and end of stretches found to hold no whole line, so that they are not read at each trigger.
Unfinished = dict[SegmentId, tuple[int, int]]


class ByteEnds:
    """Cutter of bytes, which end anywhere."""

    def cut(self, listed: ListedSegment, position: int, budget_bytes: int | None, *, crossing: bool) -> Cut:
        end = listed.end if budget_bytes is None else min(listed.end, position + budget_bytes)
        return Cut(end, end - position, end == listed.end)

    def size_bytes(self, listed: ListedSegment, start: int, end: int) -> int:
        return end - start

    def ends_at(self, listed: ListedSegment, position: int) -> bool:
        return True

    def first_from(self, listed: ListedSegment, offset: int) -> int:
        return offset


class LineEnds(ByteEnds):
    """Lines end after their separators; the last one of a sealed segment ends with it."""

    def __init__(self, form: LineFormat, read: ReadBytes, unfinished: Unfinished) -> None:
        self._form = form
        self._read = read
        self._unfinished = unfinished
        self._most_bytes = form.max_line_bytes + form.separator.before_bytes + len(BYTE_ORDER_MARK) + 1
        """Limit of a search: without a separator in so many bytes, a line is too long."""

    def cut(self, listed: ListedSegment, position: int, budget_bytes: int | None, *, crossing: bool) -> Cut:
        """See Cutter.cut. Raises InvalidRequest for a line over the limit, and what reading raises."""
        self._require_plain(listed)
        stop = listed.end if budget_bytes is None else min(listed.end, position + budget_bytes)
        if stop == listed.end and listed.complete:
            return Cut(stop, stop - position)
        if self._unfinished.get(listed.segment_id) == (position, listed.end) and not listed.complete:
            return Cut(position)
        end, after = self._last(listed, position, stop) or position, None
        if stop < listed.end:
            after = self._first(listed, end, stop) if crossing and end < stop else end
        if after is None:  # nothing, or a half-written line, follows
            self._unfinished[listed.segment_id] = (end, listed.end)
            return Cut(end, end - position)
        return Cut(after, after - position, all=after == listed.end)

    def ends_at(self, listed: ListedSegment, position: int) -> bool:
        """See Cutter.ends_at. A CR may be half of a CRLF: the next byte tells, and without one it ends nothing."""
        start = max(listed.start, position - self._form.separator.before_bytes - 1)
        data, count = self._read(listed, ByteRange(start, min(position + 1, listed.end))), position - start
        ends = (self._form.separator.complete_bytes(part, final=False) for part in (data[:count], data))
        return count > 0 and count in ends

    def first_from(self, listed: ListedSegment, offset: int) -> int:
        """See Cutter.first_from. Raises as `cut`."""
        self._require_plain(listed)
        if offset <= listed.start or (offset >= listed.end and listed.complete):
            return offset
        last = self._last(listed, listed.start, offset) or listed.start
        return last if last == offset else self._first(listed, last, offset) or last

    def _require_plain(self, listed: ListedSegment) -> None:
        if self._form.codec_of(listed.path) is not None:
            raise InvalidRequest(
                f"segment {printable(listed.path)} has a name of a compressed file; streams do not support compression",
                remedy="set compression to none to read its bytes as lines, or leave it out by pathGlobFilter",
            )

    def _last(self, listed: ListedSegment, position: int, stop: int) -> int | None:
        """Return the last end of a line in [position, stop]."""
        separator = self._form.separator
        if not separator.may_be_split:
            return self._last_from_left(listed, position, stop)
        size_bytes = _FIRST_BYTES
        while True:
            window = ByteRange(max(position, stop - size_bytes), stop)
            data = self._read(listed, window)
            whole = separator.complete_bytes(data, final=False)
            if whole:
                return window.start + whole
            self._require_short(listed, position, data)
            if window.start == position:
                return None
            size_bytes = min(size_bytes * 4, self._most_bytes)

    def _last_from_left(self, listed: ListedSegment, position: int, stop: int) -> int | None:
        """Return the same if the search has to begin at the end of a line."""
        at, rest = position, b""
        for start in range(position, stop, _STEP_BYTES):
            rest += self._read(listed, ByteRange(start, min(stop, start + _STEP_BYTES)))
            whole = self._form.separator.complete_bytes(rest, final=False)
            at, rest = at + whole, rest[whole:]
            self._require_short(listed, at, rest)
        return at if at > position else None

    def _first(self, listed: ListedSegment, position: int, end: int) -> int | None:
        """Return the end of the first line, which lies after `end`; None while it is half written."""
        size_bytes = _FIRST_BYTES
        while end < listed.end:
            end = min(listed.end, max(end, position + size_bytes))
            data = self._read(listed, ByteRange(position, end))
            final = listed.complete and end == listed.end
            start = self._form.separator.first_start(data, final=final)
            if start is not None:
                return position + start
            self._require_short(listed, position, data)
            if final:
                return listed.end
            size_bytes = min(size_bytes * 4, self._most_bytes)
        return None

    def _require_short(self, listed: ListedSegment, position: int, begun: bytes) -> None:
        """Judge a line by bytes without an end, which begin at `position` or later."""
        limit = self._form.max_line_bytes
        if self._form.least_bytes(begun, position) > limit:
            raise InvalidRequest(
                f"segment {printable(listed.path)}: a line at or after byte {position} has more than {limit} bytes",
                remedy="set the option maxLineBytes, or read type bytes",
            )


class EntryEnds:
    """Cutter of entries. Those of ledgers end according to their rows; positions are ids of entries."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._txn = txn

    def cut(self, listed: ListedSegment, position: int, budget_bytes: int | None, *, crossing: bool) -> Cut:
        if budget_bytes is None:
            return Cut(listed.end, self.size_bytes(listed, position, listed.end))
        at, size_bytes = position, 0
        for length in self._lengths(listed.segment_id, position, listed.end):
            if size_bytes >= budget_bytes or (size_bytes + length > budget_bytes and not crossing):
                return Cut(at, size_bytes, all=False)
            at += 1
            size_bytes += length
        return Cut(at, size_bytes)

    def size_bytes(self, listed: ListedSegment, start: int, end: int) -> int:
        return entry_offset(self._txn, listed.segment_id, end) - entry_offset(self._txn, listed.segment_id, start)

    def ends_at(self, listed: ListedSegment, position: int) -> bool:
        return True

    def first_from(self, listed: ListedSegment, offset: int) -> int:
        return entry_at(self._txn, listed.segment_id, offset)

    def _lengths(self, segment_id: SegmentId, start: int, end: int) -> Iterator[int]:
        for run in runs_of(self._txn, segment_id, start, end):
            yield from run.lengths[max(0, start - run.first_entry_id) : end - run.first_entry_id]


def runs_of(txn: ReadTransaction, segment_id: SegmentId, start: int, end: int) -> Iterator[EntryRun]:
    """Return the rows that hold entries [start, end), whole."""
    for run in entries.runs(txn, segment_id, start) if start < end else ():
        if run.first_entry_id >= end:
            return
        yield run


def entry_offset(txn: ReadTransaction, segment_id: SegmentId, entry_id: int) -> int:
    """Return the offset of an entry's payload; for the next entry, the end of the last."""
    run = next(entries.runs(txn, segment_id, entry_id), None)
    if run is None:
        return entries.end(txn, segment_id)
    lengths = list(accumulate(run.lengths, initial=run.payload_start))
    return lengths[min(entry_id - run.first_entry_id, len(run.lengths))]


def entry_at(txn: ReadTransaction, segment_id: SegmentId, offset: int) -> int:
    """Return the id of the entry that holds the byte at `offset`, or the number of entries if none does."""
    run = entries.run_holding(txn, segment_id, offset)
    if run is None:
        return entries.count(txn, segment_id)
    ends = list(accumulate(run.lengths, initial=run.payload_start))[1:]
    return run.first_entry_id + next(index for index, end in enumerate(ends) if end > offset)
