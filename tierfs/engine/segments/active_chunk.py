"""The chunk a segment is being appended to, in memory: its file, its length and its running CRCs.

`resume` continues the chunk of a writer that closed cleanly; `require_whole` refuses to append after missing bytes.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from tierfs.base.bytes.checksum import GridBuilder
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.system.os_errors import ours
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, TierfsError
from tierfs.base.words.types import CRC_BLOCK_BYTES, AttemptId, ObjectId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import chains, checksums
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction


class ChunkEnded(TierfsError):
    """Internal: another process ended the chunk; its file is already read-only or evicted."""


@dataclass(slots=True)
class ActiveChunk:
    """A chunk file being written. Belongs to one SegmentWriter and is used under its lock."""

    name: str
    attempt: AttemptId
    start_offset: int
    grid: GridBuilder = field(default_factory=GridBuilder)
    """The bytes written: their number and CRCs."""
    object_id: ObjectId = ObjectId(0)
    """0 until the chunk's first bytes are committed."""
    directory_synced: bool = False
    fd: int = -1
    users: int = 0
    """Threads that write to or sync the file; it stays open until they finish."""


@dataclass(slots=True)
class ChunkDescriptors:
    """Descriptors of active chunks, at most `limit` of them open while idle (invariant 9)."""

    files: ChunkFiles
    limit: int
    _open: OrderedDict[int, ActiveChunk] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def use(self, chunk: ActiveChunk) -> Iterator[int]:
        """Yield the chunk's descriptor, open for as long as the block runs."""
        with self._lock:
            if chunk.fd < 0:
                chunk.fd = self._reopen(chunk)
            self._open[id(chunk)] = chunk
            self._open.move_to_end(id(chunk))
            chunk.users += 1
        try:
            yield chunk.fd
        finally:
            with self._lock:
                chunk.users -= 1
                if len(self._open) > self.limit:
                    self._close_idle()

    def create(self, chunk: ActiveChunk) -> None:
        """Create the chunk's file."""
        fd = self.files.create_file(chunk.name)
        with self._lock:
            chunk.fd = fd
            self._open[id(chunk)] = chunk

    def close(self, chunk: ActiveChunk) -> None:
        """Close the chunk's descriptor for good, unless a thread still uses it."""
        with self._lock:
            if chunk.users == 0 and chunk.fd >= 0:
                os.close(chunk.fd)
                chunk.fd = -1
                self._open.pop(id(chunk), None)

    def sync(self, chunk: ActiveChunk) -> None:
        """Make the file's bytes durable, and its name too if it is new. Raises the disk's error."""
        with self.use(chunk) as fd:
            try:
                os.fdatasync(fd)
            except OSError as exc:
                raise ours(exc, chunk.name) from exc
        if not chunk.directory_synced:
            self.files.sync_directory(chunk.name)
            chunk.directory_synced = True

    def has_name(self, chunk: ActiveChunk) -> bool:
        """Return whether the chunk's file is still in its directory; if not, its bytes are lost when it is closed."""
        try:
            with self.use(chunk) as fd:
                return os.fstat(fd).st_nlink > 0
        except ChunkEnded:
            return False

    def _reopen(self, chunk: ActiveChunk) -> int:
        try:
            return self.files.open_for_append(chunk.name)
        except (NotFound, PermissionDenied) as exc:
            raise ChunkEnded(f"{chunk.name} was completed by the store's holder") from exc

    def _close_idle(self) -> None:
        excess = len(self._open) - self.limit
        for key, chunk in list(self._open.items()):
            if excess <= 0:
                return
            if chunk.users == 0:
                os.close(chunk.fd)
                chunk.fd = -1
                del self._open[key]
                excess -= 1


def require_whole(txn: ReadTransaction, files: ChunkFiles, segment: SegmentRecord, name: str) -> None:
    """Raise DataLoss while the active chunk's file has fewer bytes than were acknowledged.

    Call it before any change, so that every writer is refused until the file is whole again or a check has recorded
    the loss: a writer that continued in a new chunk would hide it.
    """
    if not segment.active:
        return
    last = _last_chunk(txn, segment)
    stored = chains.object_of(txn, last)
    try:
        on_disk = files.length_bytes(stored.name)
    except NotFound:
        on_disk = 0
    if on_disk < last.object_offset + last.length:
        raise DataLoss(
            f"segment {names.printable(name)}: {stored.name} has {on_disk} of {last.object_offset + last.length} bytes",
            remedy="run: tierfs check",
        )


def resume(metadata: MetadataStore, files: ChunkFiles, segment: SegmentRecord, name: str) -> ActiveChunk:
    """Return the active chunk of a segment, with the running CRCs that its records hold.

    Raises DataLoss when its file is shorter than the acknowledged bytes, or the CRCs are missing.
    """
    with metadata.read() as txn:
        require_whole(txn, files, segment, name)
        last = _last_chunk(txn, segment)
        stored = chains.object_of(txn, last)
        run = checksums.run_at(txn, stored.id, last.length - 1)
    if run is None:
        raise DataLoss(
            f"segment {names.printable(name)}: {stored.name} has no checksums of its last bytes",
            remedy="run: tierfs check",
        )
    partial = last.length % CRC_BLOCK_BYTES
    return ActiveChunk(
        stored.name,
        stored.attempt,
        last.start_offset,
        GridBuilder(last.length, run.crc(run.count - 1) if partial else 0, stored.crc32c or 0),
        object_id=stored.id,
        directory_synced=True,
    )


def _last_chunk(txn: ReadTransaction, segment: SegmentRecord) -> ChunkRecord:
    last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.length)
    assert last is not None
    return last
