"""Copy files into segments, one at a time: compare the beginning with the segment (app/compare.py), append the rest."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tierfs.app.compare import compare
from tierfs.app.inputs import BLOCK_BYTES, InputBlock, InputSource, blocks
from tierfs.app.room import Room
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import Conflict, StorageFull
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import MIB, Ack, ByteRange
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.segments import create
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.faces.cli.commands.append import closing_writer
from tierfs.faces.cli.commands.ingest_plan import Item

T = TypeVar("T")

# Least size of a file's buffer: the reported size may be wrong (/proc).
_MIN_BLOCK_BYTES = 64 * 1024

# Between two looks whether the command was interrupted: a second of decompression (a guess).
_SKIP_BYTES = 64 * MIB

# Of a file whose segment has other bytes: these may be in no other place.
_ELSEWHERE = "the segment is unchanged; ingest this file with another --into (rotated logs: see docs/operations.md)"


def file_of(status: os.stat_result, length: int) -> IngestedFile:
    """Return the attributes to keep of a file of which `length` bytes were read after `status`."""
    return IngestedFile(mode=status.st_mode, modified_ns=status.st_mtime_ns, length=length)


class Stopped(Exception):
    """The command ended before the file was complete."""


@dataclass(slots=True)
class FileIngest:
    """Ingest one file; `meter` is advanced by every byte that is in the store."""

    store: Store
    room: Room
    stop: threading.Event
    meter: Meter
    seal: bool
    written_bytes: int = 0
    """Bytes appended so far; valid after an error too."""

    def ingest(self, item: Item) -> bool:
        """Create or continue the file's segment; return False if it was already complete.

        Raises Conflict, which names a segment with other bytes, the errors of an append, OSError from reading the
        file, and Stopped.
        """
        if item.packed:
            item = replace(item, size_bytes=self._unpacked_bytes(item))
        with InputSource([item.path], unpack=item.packed) as stream:
            status = os.fstat(stream.fileno())
            with self.store.metadata.read() as txn:
                exists = directories.find(txn, item.segment) is not None
                segment = directories.segment_by_name(txn, item.segment) if exists else None
            if segment is not None and self._has_all(item, segment, stream):
                if self.seal and not segment.sealed:
                    self.store.engine.seal(item.segment)
                self._note_file(item, segment, file_of(status, segment.length))
                return False
            start = 0 if segment is None else segment.length
            self._append(item, stream, start)
            self._note_file(item, None, file_of(status, start + self.written_bytes))
            return True

    def _unpacked_bytes(self, item: Item) -> int:
        """Return the size of a compressed file's content. Of a damaged file nothing is stored: it is read to its end.

        Raises InvalidRequest for such a file, OSError, and Stopped.
        """
        with InputSource([item.path], unpack=True) as content:
            while content.skip(_SKIP_BYTES):
                self._check_stop()
            return content.consumed_bytes

    def _note_file(self, item: Item, segment: SegmentRecord | None, file: IngestedFile) -> None:
        """Record the file's mode and time in a separate commit; if that is lost, a repeated ingest does it."""
        if segment is None or segment.file != file:
            with self.store.metadata.write() as txn:
                create.note_file(txn, item.segment, file)

    def _has_all(self, item: Item, segment: SegmentRecord, stream: InputSource) -> bool:
        """Return whether the segment is complete, and take its bytes from the stream. Raises Conflict."""
        length = segment.length
        if length > item.size_bytes:
            raise _other_file(item, f"the segment has {length} bytes, the file only {item.size_bytes}")
        if segment.start_offset == length > 0:
            words = f"tail -c +{length + 1} {as_word(item.path)} | tierfs append {as_word(item.segment)}"
            rest = _ELSEWHERE if item.packed else f"if it is the same file: {words}"
            raise _conflict(item, "has no bytes to compare any more", remedy=rest)

        def advance(compared_bytes: int) -> None:
            self._check_stop()
            self.meter(compared_bytes, item.segment)

        done = compare(self.store, [segment], ByteRange(0, length), stream, advance)
        if (part := done.difference) is not None and not done.compared_bytes:
            raise _other_file(item, f"bytes {part.start} to {part.end} differ")
        if part is not None or done.taken_bytes < length:
            where = f"in bytes {part.start} to {part.end}" if part is not None else f"from byte {done.taken_bytes} on"
            raise _conflict(item, f"differs from the file {where}")
        if done.compared_bytes < length - segment.start_offset:
            raise _conflict(item, f"cannot be compared with the file: {done.why or 'bytes of it are lost'}")
        if length < item.size_bytes and segment.sealed:
            raise _conflict(
                item,
                f"is sealed at {length} of {item.size_bytes} bytes",
                remedy=f"tierfs unseal {printable(item.segment)}, then ingest with --open",
            )
        return length == item.size_bytes

    def _append(self, item: Item, stream: InputSource, start: int) -> None:
        """Append the rest of the stream."""
        engine = self.store.engine
        writer = self._with_room(  # whole files make better objects than their blocks: `ack` is kept by an offload
            item, lambda: engine.open_writer(item.segment, expected_offset=start, one_segment=True, ack=Ack.LOCAL)
        )
        size_bytes = min(BLOCK_BYTES, max(_MIN_BLOCK_BYTES, item.size_bytes - start))
        with closing_writer(self.store, writer):
            ended = False
            for block in blocks(stream, size_bytes):
                self._append_block(item, writer, block)
                self.meter(len(block.data), item.segment)
                ended = block.last
            if not ended:
                self._append_block(item, writer, InputBlock(memoryview(b""), last=True))

    def _append_block(self, item: Item, writer: SegmentWriter, block: InputBlock) -> None:
        self._check_stop()
        self._with_room(item, lambda: writer.append(block.data, last=block.last, seal=block.last and self.seal))
        self.written_bytes += len(block.data)

    def _with_room(self, item: Item, work: Callable[[], T]) -> T:
        """Do `work`; while the disk is full, make room or wait for the holder to do so."""
        try:
            return self.room.make(item.segment, work, self.stop)
        except StorageFull:
            self._check_stop()
            raise

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise Stopped


def _conflict(item: Item, why: str, *, remedy: str = _ELSEWHERE) -> Conflict:
    return Conflict(f"segment {printable(item.segment)} already exists and {why}", remedy=remedy)


def _other_file(item: Item, how: str) -> Conflict:
    """Return the error of a file that has the name of an earlier one, as after the rotation of a log."""
    return Conflict(
        f"{printable(item.path)} is not the file of segment {printable(item.segment)}: {how}", remedy=_ELSEWHERE
    )
