"""One file of an ingest: compare it with what the store has, then append what is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tierfs.app import Store
from tierfs.background import holder
from tierfs.checksum import crc32c
from tierfs.cli.append import closing_writer
from tierfs.cli.ingest_plan import Item
from tierfs.cli.session import Session
from tierfs.cli.source import BLOCK_BYTES, Block, Source, blocks
from tierfs.errors import Conflict, StorageFull
from tierfs.metadata import directories
from tierfs.metadata.records import SegmentRecord
from tierfs.names import printable
from tierfs.segments import stat
from tierfs.segments.writer import SegmentWriter

T = TypeVar("T")

_ROOM_POLL_S = 1.0
"""Between two looks whether offload and evict have made room."""

_MIN_BLOCK_BYTES = 64 * 1024
"""A file's reported size may be wrong (/proc); its buffer is never smaller."""


class Stopped(Exception):
    """The command ends before this file was finished."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a file."""

    written_bytes: int = 0
    skipped: bool = False


class FileIngest:
    """Ingests one file; `advance` learns of every byte that is in the store."""

    def __init__(
        self,
        store: Store,
        session: Session,
        stop: threading.Event,
        advance: Callable[[Item, int], None],
        *,
        seal: bool,
    ) -> None:
        self._store = store
        self._session = session
        self._stop = stop
        self._advance = advance
        self._seal = seal

    def ingest(self, item: Item) -> Result:
        """Make or continue the file's segment.

        Raises Conflict naming a segment that holds other bytes, what an append raises, OSError for what
        reading the file raises, and Stopped.
        """
        with Source([item.path]) as stream:
            segment = self._segment(item)
            if segment is None:
                return Result(self._append(item, stream, 0))
            if self._has_all(item, segment, stream):
                if self._seal and not segment.sealed:
                    self._store.engine.seal(item.segment)
                return Result(skipped=True)
            return Result(self._append(item, stream, segment.length))

    def _segment(self, item: Item) -> SegmentRecord | None:
        with self._store.metadata.read() as txn:
            if directories.find(txn, item.segment) is None:
                return None
            return directories.segment_by_name(txn, item.segment)

    def _has_all(self, item: Item, segment: SegmentRecord, stream: Source) -> bool:
        """Whether nothing is missing; leaves the stream behind what the store has. Raises Conflict."""
        length = segment.length
        if length == item.size_bytes and segment.sealed:
            self._advance(item, length)
            return True
        if length > item.size_bytes:
            raise _conflict(item, f"it is longer: {length} bytes, not {item.size_bytes}")
        if segment.sealed:
            raise _conflict(item, f"it is sealed at {length} of {item.size_bytes} bytes")
        with self._store.metadata.read() as txn:
            expected = stat.segment_crc(txn, segment)
        if expected is None or segment.start_offset:
            raise _conflict(item, "its bytes cannot be compared from metadata alone")
        if self._crc_of_head(item, stream, length) != expected:
            raise _conflict(item, f"its {length} bytes are others than the file's")
        return length == item.size_bytes

    def _crc_of_head(self, item: Item, stream: Source, length: int) -> int:
        buffer = memoryview(bytearray(min(BLOCK_BYTES, max(length, 1))))
        crc, left = 0, length
        while left and (size := stream.read_into(buffer[: min(len(buffer), left)])):
            self._check_stop()
            crc = crc32c(buffer[:size], crc)
            left -= size
            self._advance(item, size)
        return crc

    def _append(self, item: Item, stream: Source, start: int) -> int:
        """Append the rest of the stream; returns how many bytes that were."""
        engine = self._store.engine
        writer = self._with_room(lambda: engine.open_writer(item.segment, expected_offset=start, one_segment=True))
        size_bytes = min(BLOCK_BYTES, max(_MIN_BLOCK_BYTES, item.size_bytes - start))
        with closing_writer(self._store, writer):
            ended = False
            for block in blocks(stream, size_bytes):
                self._append_block(writer, block)
                self._advance(item, len(block.data))
                ended = block.last
            if not ended:
                self._append_block(writer, Block(memoryview(b""), last=True))
            return writer.length - start

    def _append_block(self, writer: SegmentWriter, block: Block) -> None:
        self._check_stop()
        self._with_room(lambda: writer.append(block.data, last=block.last, seal=block.last and self._seal))

    def _with_room(self, work: Callable[[], T]) -> T:
        """Do `work`; while the disk is full and somebody may make room, wait and say why."""
        told = False
        while True:
            try:
                return work()
            except StorageFull as exc:
                who = holder.current(self._store.paths.holder)
                if who is None:
                    raise
                if not told:
                    self._session.warn(f"{exc}; waiting for {who} to make room")
                told = True
            if self._stop.wait(_ROOM_POLL_S):
                raise Stopped

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _conflict(item: Item, why: str) -> Conflict:
    return Conflict(
        f"segment {printable(item.segment)} is there already and {why}", remedy="choose another --into, or remove it"
    )
