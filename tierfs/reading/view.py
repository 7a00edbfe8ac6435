"""SegmentView: the snapshot of one segment that an open handle reads from.

The chunks of a segment are loaded in windows, so that opening one of a million chunks costs what a small one
does. A window begins small and doubles while reads go on where the last one ended. Windows of an unsealed
segment are dropped when any process committed something; those of a sealed one stay until they are renewed.
"""

from __future__ import annotations

from tierfs import names
from tierfs.errors import Fenced, NotFound
from tierfs.metadata import directories
from tierfs.metadata.layout import WINDOW_CHUNKS, Layout, load
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.types import ByteRange, SegmentId

_FIRST_CHUNKS = 4
"""Chunks of each tier in the first window at a new place: a random read pays for no more (about 40 µs)."""

_MAX_WINDOWS = 8
"""Windows kept: readers at several places of one file share a handle."""


class SegmentView:
    """Raises NotFound on creation when there is no such segment, Fenced later when it was deleted."""

    def __init__(self, metadata: MetadataStore, segment_id: SegmentId) -> None:
        self._metadata = metadata
        with metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                raise NotFound(f"segment {segment_id} does not exist")
            self._windows = [load(txn, segment, segment.start_offset, _FIRST_CHUNKS)]
        self.segment: SegmentRecord = segment
        self._sealed = segment.sealed
        self._transaction_id = self._windows[0].transaction_id
        self._chunks = _FIRST_CHUNKS

    @property
    def name(self) -> str:
        """The segment as messages call it."""
        return f"segment {names.printable(self.segment.name)}"

    def refresh(self) -> None:
        """Take in commits of any process if the segment may have changed by them."""
        if not self._sealed and self._metadata.last_transaction_id() != self._transaction_id:
            self.renew()

    def renew(self) -> None:
        """Forget all windows and read the segment's record again."""
        with self._metadata.read() as txn:
            segment = directories.segment(txn, self.segment.id)
            if segment is None:
                raise Fenced(f"{self.name} was deleted")
            self._take(segment)
            self._transaction_id = txn.id
        self._windows.clear()

    def clamp(self, offset: int, size_bytes: int) -> ByteRange:
        """Bytes [offset, offset + size), cut at the segment's end. Raises Fenced below its start offset."""
        segment = self.segment
        self.require(offset)
        return ByteRange(min(offset, segment.length), min(offset + size_bytes, segment.length))

    def require(self, offset: int) -> None:
        """Raises Fenced when the head that held this byte was cut off."""
        start_offset = self.segment.start_offset
        if offset < start_offset:
            raise Fenced(f"{self.name} begins at {start_offset} now; bytes from {offset} on are gone")

    def layout(self, offset: int) -> Layout:
        """The window that holds the byte at `offset`, which lies inside the segment."""
        windows = self._windows
        for index, layout in enumerate(windows):
            if layout.window.start <= offset < layout.window.end:
                if index:
                    windows.insert(0, windows.pop(index))
                return layout
        return self._load(offset)

    def _load(self, offset: int) -> Layout:
        goes_on = any(layout.window.end == offset for layout in self._windows)
        self._chunks = min(WINDOW_CHUNKS, self._chunks * 2) if goes_on else _FIRST_CHUNKS
        with self._metadata.read() as txn:
            segment = directories.segment(txn, self.segment.id)
            if segment is None:
                raise Fenced(f"{self.name} was deleted")
            layout = load(txn, segment, offset, self._chunks)
            if txn.id != self._transaction_id and not self._sealed:
                self._windows.clear()
                self._transaction_id = txn.id
            self._take(segment)
        self._windows.insert(0, layout)
        del self._windows[_MAX_WINDOWS:]
        self.require(offset)
        return layout

    def _take(self, segment: SegmentRecord) -> None:
        self.segment = segment
        self._sealed = segment.sealed
