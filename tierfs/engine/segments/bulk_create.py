"""Create segments in bulk, each with all of its bytes.

The files are written and synced in parallel, and one commit is made for all: a single segment costs two file syncs and
two commits, one of a batch costs one sync beside others. Crash order, as for an append: ids reserved -> files written
and synced -> their directory synced -> one commit that makes every segment. A crash before the commit leaves files that
no record names, which `gc` finds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial

from tierfs.base.bytes.checksum import Buffer, GridBuilder
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.osio import write_all
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotDirectory, StorageFull, Unavailable
from tierfs.base.words.types import (
    AttemptId,
    ObjectId,
    SegmentId,
    Tier,
)
from tierfs.engine.chunkstore.local_files import ChunkFiles, name_beside
from tierfs.engine.metadata import chain_edits, changes, checksums, policies
from tierfs.engine.metadata.batch_records import NO_FILE
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, TierState
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.segment_builder import SegmentBuilder

# Enough for a journaling filesystem to join their commits; measured, a whole ingest: 1 makes 1,700 files/s, 2 2,050, 4
# 2,150, 8 2,000.
_SYNCS_IN_PARALLEL = 4


@dataclass(frozen=True, slots=True)
class WholeSegment:
    """A segment to create, with all of its bytes."""

    name: str
    data: Buffer
    file: IngestedFile = NO_FILE
    """The file that the bytes were read from."""


@dataclass(slots=True)
class _NewFile:
    """The chunk file of one segment, kept open to see whether it still has its name."""

    wanted: WholeSegment
    segment_id: SegmentId
    name: str
    attempt: AttemptId
    fd: int = -1
    grid: GridBuilder = field(default_factory=GridBuilder)

    @property
    def length_bytes(self) -> int:
        """Return the bytes of the segment."""
        return len(memoryview(self.wanted.data))

    def close(self) -> None:
        """Release the descriptor; idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class BulkCreator:
    """Creates batches of segments for one process. Thread-safe; close it."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, free_space_floor_bytes: int) -> None:
        self._metadata = metadata
        self._files = files
        self._floor_bytes = free_space_floor_bytes
        from tierfs.base.bytes.parallel import Pool

        self._pool = Pool(_SYNCS_IN_PARALLEL, "tierfs-bulk")

    def create(self, batch: Sequence[WholeSegment], *, seal: bool) -> list[bool]:
        """Create each segment of the batch durably; return for each whether it was created.

        False means that its name is taken or invalid, or that it is longer than a chunk: nothing was changed for
        it, and an append raises the reason. Without bytes the segment is empty. Raises StorageFull, Fenced,
        DataLoss or Unavailable, with none of them created.
        """
        self._require_room(sum(len(memoryview(wanted.data)) for wanted in batch))
        files = self._new_files(batch)
        try:
            self._write(files)
            created = self._commit(files, seal=seal)
            self._discard(file for file, made in zip(files, created, strict=True) if not made)
        finally:
            for file in files:
                file.close()
        return created

    def close(self) -> None:
        """End the threads; idempotent."""
        self._pool.close()

    def _new_files(self, batch: Sequence[WholeSegment]) -> list[_NewFile]:
        """Reserve segment ids, and file names in one directory, so that one sync makes all of them durable."""
        with self._metadata.write() as txn:
            ids = [SegmentId(txn.allocate_id()) for _ in batch]
        attempts = [AttemptId(new_id()) for _ in batch]
        return [
            _NewFile(wanted, number, name_beside(ids[0], number, 0, attempt), attempt)
            for wanted, number, attempt in zip(batch, ids, attempts, strict=True)
        ]

    def _write(self, files: Sequence[_NewFile]) -> None:
        """Write and sync all files; remove them if the batch fails."""
        filled = [file for file in files if file.length_bytes]
        try:
            shares = [filled[at::_SYNCS_IN_PARALLEL] for at in range(_SYNCS_IN_PARALLEL)]
            self._pool.run(self._write_share, shares)  # returns when no thread writes: files may then be removed
            if filled:
                self._files.sync_directory(filled[0].name)
        except BaseException:
            self._discard(files)
            raise

    def _write_share(self, files: Sequence[_NewFile]) -> None:
        for file in files:  # a task per file would cost as much as the write
            self._write_one(file)

    def _write_one(self, file: _NewFile) -> None:
        file.fd = self._files.create_file(file.name)
        with map_os_errors(file.name):
            write_all(file.fd, file.wanted.data, 0)
        self._files.seal_open(file.fd, file.name)
        with map_os_errors(file.name):
            os.fdatasync(file.fd)
        file.grid.feed(file.wanted.data)

    def _commit(self, files: Sequence[_NewFile], *, seal: bool) -> list[bool]:
        """Commit the whole batch at once; remove the files of one that is refused.

        A commit that was begun may have happened although it fails: its files are left to the holder.
        """
        begun = False
        try:
            with self._metadata.write() as txn:
                _require_named(files)
                builder = SegmentBuilder(txn, seal=seal)
                created = [_add(txn, builder, file) for file in files]
                builder.end()
                begun = True
        except BaseException:
            if not begun:
                self._discard(files)
            raise
        return created

    def _require_room(self, size_bytes: int) -> None:
        free = self._files.free_bytes()
        if free - size_bytes < self._floor_bytes:
            raise StorageFull(
                f"cannot create segments: the local disk is full ({free >> 20} MiB free)",
                remedy="free space with: tierfs offload PATH && tierfs evict PATH",
            )

    def _discard(self, files: Iterable[_NewFile]) -> None:
        """Remove files that no record names."""
        for file in files:
            if file.fd >= 0:
                file.close()
                self._files.discard(file.name)


def _require_named(files: Iterable[_NewFile]) -> None:
    """Raise Unavailable when a file was removed; call it in the write transaction, which excludes later removals."""
    for file in files:
        if file.fd >= 0 and not os.fstat(file.fd).st_nlink:
            raise Unavailable(
                f"{file.name} was removed before its bytes were committed", remedy="run the command again"
            )


def _add(txn: WriteTransaction, builder: SegmentBuilder, file: _NewFile) -> bool:
    """Create a segment; return False, with at most its directories made, when only an append can create it."""
    name, length = file.wanted.name, file.length_bytes
    try:
        parent = builder.parent(name)
        if not parent.chunk_bytes:
            parent.chunk_bytes = policies.of_directory(txn, parent.record.id).values.chunk_bytes
        if length > parent.chunk_bytes:
            return False
        chain = partial(_chain, txn, file, builder.store_epoch) if length else TierState
        segment = builder.make(file.segment_id, name, length, file.wanted.file, chain)
    except (InvalidRequest, NotDirectory, AlreadyExists):
        return False
    changes.put_segment(txn, segment)
    return True


def _chain(txn: WriteTransaction, file: _NewFile, store_epoch: int) -> TierState:
    """Return the chain of the one local chunk, which is complete: an append starts another."""
    record = ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=Tier.LOCAL,
        name=file.name,
        length=file.length_bytes,
        references=1,
        crc32c=file.grid.crc32c,
        store_epoch=store_epoch,
        attempt=file.attempt,
        created_ms=txn.now_ms,
    )
    checksums.write_blocks(txn, record.id, 0, file.grid.grid())
    chunk = ChunkRecord(start_offset=0, length=file.length_bytes, object_id=record.id)
    return chain_edits.begin(txn, file.segment_id, Tier.LOCAL, chunk, record)
