"""Reads the few bytes that the driver of a stream needs to find the ends of lines."""

from __future__ import annotations

from types import TracebackType

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.fetching import ScanFetcher, ScanSource, WantedRequest
from tierfs.pipeline.reader.selection import Pinner
from tierfs.pipeline.reader.stream_plan import (
    ListedSegment,
)


class DriverReader:
    """Reads bytes of segments in one transaction; its threads begin with the first read."""

    def __init__(
        self, txn: ReadTransaction, pinner: Pinner, place: ScannedStore, connections: PlaceConnections
    ) -> None:
        self._txn = txn
        self._pinner = pinner
        self._place = place
        self._connections = connections
        self._sources: list[ScanSource] = []
        self._fetcher: ScanFetcher | None = None

    def read(self, listed: ListedSegment, window: ByteRange) -> bytes:
        """Return bytes of a segment. Raises DataLoss if it is gone, and what reading raises."""
        pinned = self._pinner.pin(listed.path, segment_of(self._txn, listed), window)
        if self._fetcher is None:
            self._fetcher = ScanFetcher(self._place, self._connections, self._sources)
        owner = len(self._sources)
        self._sources.append(ScanSource(listed.segment_id, listed.path, pinned.priority.value, pinned.ledger))
        wanted = (WantedRequest(owner, extent) for extent in pinned.extents)
        return b"".join(bytes(piece.view) for piece in self._fetcher.pieces(wanted))

    def __enter__(self) -> DriverReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fetcher is not None:
            self._fetcher.close()


def segment_of(txn: ReadTransaction, listed: ListedSegment) -> SegmentRecord:
    """Return the record of a listed segment. Raises DataLoss if it is gone."""
    record = directories.segment(txn, listed.segment_id)
    if record is None:
        raise DataLoss(f"segment {printable(listed.path)} was deleted while it was read", remedy="run the query again")
    return record
