"""One file of an ingest: compare it with what the store has, then append what is missing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from tierfs.app import Store
from tierfs.cli.append import closing_writer
from tierfs.cli.ingest_compare import Incomparable, first_difference
from tierfs.cli.ingest_plan import Item, file_of
from tierfs.cli.room import Room
from tierfs.cli.source import BLOCK_BYTES, Block, Source, blocks
from tierfs.errors import Conflict, StorageFull
from tierfs.metadata import directories
from tierfs.metadata.records import IngestedFile, SegmentRecord
from tierfs.names import printable
from tierfs.parallel import Meter
from tierfs.segments import create
from tierfs.segments.writer import SegmentWriter

T = TypeVar("T")

_MIN_BLOCK_BYTES = 64 * 1024
"""A file's reported size may be wrong (/proc); its buffer is never smaller."""


class Stopped(Exception):
    """The command ends before this file was finished."""


class FileIngest:
    """Ingests one file; `meter` learns of every byte that is in the store."""

    def __init__(
        self,
        store: Store,
        room: Room,
        stop: threading.Event,
        meter: Meter,
        *,
        seal: bool,
    ) -> None:
        self._store = store
        self._room = room
        self._stop = stop
        self._meter = meter
        self._seal = seal
        self.written_bytes = 0
        """What was appended so far, however this ends."""

    def ingest(self, item: Item) -> bool:
        """Make or continue the file's segment; False when it had all of it already.

        Raises Conflict naming a segment that holds other bytes, what an append raises, OSError for what
        reading the file raises, and Stopped.
        """
        with Source([item.path]) as stream:
            status = os.fstat(stream.fileno())
            segment = self._segment(item)
            if segment is not None and self._has_all(item, segment, stream):
                if self._seal and not segment.sealed:
                    self._store.engine.seal(item.segment)
                self._note_file(item, segment, file_of(status, segment.length))
                return False
            start = 0 if segment is None else segment.length
            self._append(item, stream, start)
            self._note_file(item, None, file_of(status, start + self.written_bytes))
            return True

    def _note_file(self, item: Item, segment: SegmentRecord | None, file: IngestedFile) -> None:
        """Keep the file's mode and time: a commit of its own, which a repeated ingest makes up for."""
        if segment is None or segment.file != file:
            with self._store.metadata.write() as txn:
                create.note_file(txn, item.segment, file)

    def _segment(self, item: Item) -> SegmentRecord | None:
        with self._store.metadata.read() as txn:
            if directories.find(txn, item.segment) is None:
                return None
            return directories.segment_by_name(txn, item.segment)

    def _has_all(self, item: Item, segment: SegmentRecord, stream: Source) -> bool:
        """Whether nothing is missing; leaves the stream behind what the store has. Raises Conflict."""
        length = segment.length
        if length > item.size_bytes:
            raise _conflict(item, f"it is longer: {length} bytes, not {item.size_bytes}")
        if length < item.size_bytes and segment.sealed:
            raise _conflict(item, f"it is sealed at {length} of {item.size_bytes} bytes")
        if segment.start_offset:
            raise _conflict(item, f"its first {segment.start_offset} bytes were cut off")
        self._compare(item, segment, stream)
        stream.skip(length)
        return length == item.size_bytes

    def _compare(self, item: Item, segment: SegmentRecord, stream: Source) -> None:
        """Raise Conflict unless the file begins with the segment's bytes."""

        def advance(compared_bytes: int) -> None:
            self._check_stop()
            self._meter(compared_bytes, item.segment)

        try:
            found = first_difference(self._store.metadata, segment, stream.fileno(), advance)
        except Incomparable:
            raise _conflict(item, "its bytes cannot be compared from metadata alone") from None
        if found is not None:
            raise _conflict(item, f"differs from the file in bytes {found.start} to {found.end}")

    def _append(self, item: Item, stream: Source, start: int) -> None:
        """Append the rest of the stream."""
        engine = self._store.engine
        writer = self._with_room(
            item, lambda: engine.open_writer(item.segment, expected_offset=start, one_segment=True)
        )
        size_bytes = min(BLOCK_BYTES, max(_MIN_BLOCK_BYTES, item.size_bytes - start))
        with closing_writer(self._store, writer):
            ended = False
            for block in blocks(stream, size_bytes):
                self._append_block(item, writer, block)
                self._meter(len(block.data), item.segment)
                ended = block.last
            if not ended:
                self._append_block(item, writer, Block(memoryview(b""), last=True))

    def _append_block(self, item: Item, writer: SegmentWriter, block: Block) -> None:
        self._check_stop()
        self._with_room(item, lambda: writer.append(block.data, last=block.last, seal=block.last and self._seal))
        self.written_bytes += len(block.data)

    def _with_room(self, item: Item, work: Callable[[], T]) -> T:
        """Do `work`; while the disk is full, make room or wait for the holder to make some."""
        try:
            return self._room.make(item.segment, work, self._stop)
        except StorageFull:
            self._check_stop()
            raise

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _conflict(item: Item, why: str) -> Conflict:
    return Conflict(
        f"segment {printable(item.segment)} is there already and {why}", remedy="choose another --into, or remove it"
    )
