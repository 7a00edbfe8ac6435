"""Lists the segments of a stream's selection, and reads the few bytes its driver needs to find the ends of lines.

The list is made again when a number was given, as for each new or unsealed segment; else only the segments that
are not finished are checked. So a stream over very many sealed segments costs little while one of them grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

from tierfs.errors import DataLoss, InvalidRequest, NotFound
from tierfs.metadata import chains, directories, entries
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import printable
from tierfs.scan.extents import Place, PlaceConnections
from tierfs.scan.fetching import ScanFetcher, ScanSource, WantedRequest
from tierfs.scan.record_ends import entry_at
from tierfs.scan.selection import Selection, select
from tierfs.scan.snapshot import Pinner
from tierfs.scan.stream_plan import ListedSegment, StreamOffset, unfinished
from tierfs.types import ROOT_DIRECTORY, ByteRange, DirectoryId, SegmentId, SegmentKind


class Listing:
    """The segments of a selection. Used by one thread at a time."""

    def __init__(self, selection: Selection, *, cold_only: bool, of_entries: bool) -> None:
        """`cold_only`: segments end where the cold tier does; `of_entries`: positions are of entries, not of bytes."""
        self._selection = selection
        self._cold_only = cold_only
        self._of_entries = of_entries
        self._next_id = 0
        self._found: dict[SegmentId, ListedSegment] = {}

    def at(self, txn: ReadTransaction, start: StreamOffset) -> tuple[ListedSegment, ...]:
        """Return the segments as they are now; of those finished at `start` only that they exist.

        Raises InvalidRequest for a segment that is not a ledger if entries are wanted.
        """
        if txn.store.next_id != self._next_id:
            self._found = {one.segment_id: one for one in self._all(txn)}
            self._next_id = txn.store.next_id
        else:
            self._look_again(txn, start)
        return tuple(self._found.values())

    def _look_again(self, txn: ReadTransaction, start: StreamOffset) -> None:
        """Return the same segments as they are now, without those that are gone."""
        going = _Going(txn)
        for one in list(unfinished(start, self._found.values())):
            segment = directories.segment(txn, one.segment_id)
            if segment is None or going.has(segment):
                del self._found[one.segment_id]
            else:
                self._found[one.segment_id] = self._describe(txn, one.path, segment)

    @property
    def known(self) -> tuple[ListedSegment, ...]:
        """Return the segments as last seen."""
        return tuple(self._found.values())

    def _all(self, txn: ReadTransaction) -> Iterator[ListedSegment]:
        """Return all segments; a path that is gone, or does not exist yet, has none."""
        seen = set[SegmentId]()
        for path in self._selection.paths:
            try:
                for name, segment in select(txn, replace(self._selection, paths=(path,))):
                    if segment.id not in seen:
                        seen.add(segment.id)
                        yield self._describe(txn, name, segment)
            except NotFound:
                continue

    def _describe(self, txn: ReadTransaction, name: str, segment: SegmentRecord) -> ListedSegment:
        start, length = segment.start_offset, segment.length
        end = min(chains.cold_end(txn, segment), segment.length) if self._cold_only else length
        if self._of_entries:
            if segment.kind is not SegmentKind.LEDGER:
                raise InvalidRequest(
                    f"segment {printable(name)} is not a ledger", remedy="read type lines or bytes, or other paths"
                )
            count = entries.count(txn, segment.id)
            end = count if end == length else entry_at(txn, segment.id, end)
            start, length = entry_at(txn, segment.id, start) if start else 0, count
        return ListedSegment(segment.id, segment.birth, name, segment.sealed, segment.sealed_ms, start, end, length)


class _Going:
    """Tells which segments were removed and await their deletion; each directory is looked up once."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._txn = txn
        self._below: dict[DirectoryId, bool] = {}

    def has(self, segment: SegmentRecord) -> bool:
        """Return whether a segment is one."""
        parent_id = segment.parent_id
        if parent_id == ROOT_DIRECTORY:
            return directories.is_removed(parent_id, segment.name)
        if parent_id not in self._below:
            self._below[parent_id] = directories.is_going(self._txn, segment)
        return self._below[parent_id]


class DriverReader:
    """Reads bytes of segments in one transaction; its threads begin with the first read."""

    def __init__(self, txn: ReadTransaction, pinner: Pinner, place: Place, connections: PlaceConnections) -> None:
        self._txn = txn
        self._pinner = pinner
        self._place = place
        self._connections = connections
        self._sources: list[ScanSource] = []
        self._fetcher: ScanFetcher | None = None

    def read(self, one: ListedSegment, span: ByteRange) -> bytes:
        """Return bytes of a segment. Raises DataLoss if it is gone, and what reading raises."""
        pinned = self._pinner.pin(one.path, segment_of(self._txn, one), span)
        if self._fetcher is None:
            self._fetcher = ScanFetcher(self._place, self._connections, self._sources)
        owner = len(self._sources)
        self._sources.append(ScanSource(one.segment_id, one.path, pinned.priority, pinned.ledger))
        wanted = (WantedRequest(owner, extent) for extent in pinned.extents)
        return b"".join(bytes(piece.view) for piece in self._fetcher.pieces(wanted))

    def __enter__(self) -> DriverReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fetcher is not None:
            self._fetcher.close()


def segment_of(txn: ReadTransaction, one: ListedSegment) -> SegmentRecord:
    """Return the record of a listed segment. Raises DataLoss if it is gone."""
    found = directories.segment(txn, one.segment_id)
    if found is None:
        raise DataLoss(f"segment {printable(one.path)} was deleted while it was read", remedy="run the query again")
    return found
