"""A pinned snapshot: the segments of a scan as one transaction sees them, each with its end and its extents.

Bytes appended later are not read, however often the scan runs; so retries and later actions see the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tierfs.config import ColdSettings
from tierfs.errors import PermissionDenied, Unavailable
from tierfs.metadata import chains, entries, policies
from tierfs.metadata.ledger_and_batch_records import EntryRun
from tierfs.metadata.records import LocationRecord, SegmentRecord
from tierfs.metadata.tables import LOCATIONS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import printable
from tierfs.scan.extents import Extent, Place, extents_of
from tierfs.scan.fetching import ScannedLedger
from tierfs.setup.connect import require_allowed
from tierfs.types import ByteRange, ReadPriority, SegmentKind


class Tail(StrEnum):
    """Treatment of bytes that are only in the store's directory."""

    LOCAL = "local"
    """Executors read them there."""
    OFFLOAD = "offload"
    """They are made cold first."""
    COLD_ONLY = "cold-only"
    """The scan ends before them."""
    ERROR = "error"
    """The scan is refused."""


@dataclass(frozen=True, slots=True)
class PinnedSegment:
    """One segment of a snapshot."""

    segment: SegmentRecord
    path: str
    range: ByteRange
    """The bytes that may be read."""
    extents: tuple[Extent, ...]
    """Of the whole range."""
    priority: ReadPriority
    ledger: ScannedLedger | None = None
    part: ByteRange | None = None
    """Stretch whose records are read; None for the whole range."""

    @property
    def owned(self) -> ByteRange:
        """The range whose records, by their first byte, are read."""
        return self.range if self.part is None else self.part


class Pinner:
    """Pins segments in one transaction."""

    def __init__(self, txn: ReadTransaction, priority: ReadPriority | None, tail: Tail) -> None:
        """`priority` overrides the segments' policies; `tail`: bytes that were to be offloaded are cold by now."""
        self._txn = txn
        self._priority = priority
        self._tail = tail
        self._policies = policies.PolicyCache()

    def pin(
        self,
        path: str,
        segment: SegmentRecord,
        wanted: ByteRange | None = None,
        start_entry_id: int = 0,
        end_entry_id: int | None = None,
    ) -> PinnedSegment:
        """Pin a segment, or its bytes inside `wanted`, and of a ledger only these entries.

        Raises Unavailable or DataLoss for bytes that nothing holds, Unavailable for a tail that may not be read.
        """
        priority = self._priority_of(segment)
        span = self._cut(path, segment, segment.range if wanted is None else segment.range.intersect(wanted))
        extents = tuple(extents_of(self._txn, segment, span, priority))
        ledger = self._ledger(segment, span)
        if ledger is not None:
            ledger = replace(ledger, start_entry_id=start_entry_id, end_entry_id=end_entry_id)
        return PinnedSegment(segment, path, span, extents, priority, ledger)

    def _priority_of(self, segment: SegmentRecord) -> ReadPriority:
        """Return the priority, cold first if executors need not be asked for the store's directory."""
        if self._priority is not None:
            return self._priority
        if self._tail is not Tail.LOCAL:
            return ReadPriority.OFFLOADED_ONLY
        return self._policies.effective(self._txn, segment).read_priority

    def _cut(self, path: str, segment: SegmentRecord, span: ByteRange) -> ByteRange:
        """Return the bytes before those only in the store's directory, unless these may be read."""
        if self._tail is Tail.LOCAL:
            return span
        cold_end = chains.cold_end(self._txn, segment)
        if span.end <= cold_end:
            return span
        if self._tail is not Tail.COLD_ONLY:
            local_bytes = span.end - max(cold_end, span.start)
            raise Unavailable(
                f"segment {printable(path)}: {local_bytes} bytes are only in the store's directory",
                remedy="set the option tail to local, offload or cold-only",
            )
        return ByteRange(span.start, max(span.start, cold_end))

    def _ledger(self, segment: SegmentRecord, span: ByteRange) -> ScannedLedger | None:
        if segment.kind is not SegmentKind.LEDGER:
            return None
        return ScannedLedger(segment.id, tuple(_runs(self._txn, segment, span)))


def place_of(txn: ReadTransaction, path: str, settings: ColdSettings) -> Place:
    """Return the store as executors reach it, with the locations that may be read."""
    allowed = (record for _, record in txn.scan(LOCATIONS) if _may_be_read(record, settings))
    return Place(path, txn.store.store_id, tuple(replace(record, stored=b"") for record in allowed), settings)


def _may_be_read(location: LocationRecord, settings: ColdSettings) -> bool:
    try:
        require_allowed(location, settings)
    except PermissionDenied:
        return False
    return True


def _runs(txn: ReadTransaction, segment: SegmentRecord, span: ByteRange) -> Iterator[EntryRun]:
    """Return the runs that intersect `span`, with those of empty entries at its end if the segment ends there."""
    first = entries.run_holding(txn, segment.id, span.start) if span.start > segment.start_offset else None
    for run in entries.runs(txn, segment.id, 0 if first is None else first.first_entry_id):
        if run.payload_start > span.end or (run.payload_start == span.end < segment.length):
            return
        if run.payload_end >= span.start:
            yield replace(run, stored=b"")
