"""Create segments, one at a time or in bulk, with their missing parent directories; write the record that seals one.

Bulk creation writes and syncs the files in parallel and makes one commit for all: a single segment costs two file
syncs and two commits, one of a batch costs one sync beside others. Crash order, as for an append: ids reserved ->
files written and synced -> their directory synced -> one commit that makes every segment. A crash before the commit
leaves files that no record names, which `gc` finds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from tierfs.base.bytes.checksum import Buffer, GridBuilder
from tierfs.base.system.osio import map_os_errors, write_all
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotDirectory, StorageFull, Unavailable
from tierfs.base.words.types import (
    AttemptId,
    DirectoryId,
    EntryKind,
    Inode,
    ObjectId,
    SegmentId,
    SegmentKind,
    SegmentStatus,
    Tier,
)
from tierfs.engine.chunkstore.local_files import ChunkFiles, name_beside
from tierfs.engine.metadata import chain_edits, changes, checksums, directories, entries, policies
from tierfs.engine.metadata.batch_records import NO_FILE
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.records import ChunkRecord, DirectoryRecord, ObjectRecord, SegmentRecord, TierState
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction


def create(
    txn: WriteTransaction, name: str, kind: SegmentKind = SegmentKind.BYTES, reserved: SegmentId | None = None
) -> SegmentRecord:
    """Create an empty open segment, with the id that was reserved for it, if one was.

    Raises AlreadyExists, NotDirectory or InvalidRequest.
    """
    parent_id, last = make_parent(txn, name)
    segment_id = SegmentId(txn.allocate_id()) if reserved is None else reserved
    new = SegmentRecord(id=segment_id, parent_id=parent_id, name=last, inode=Inode(txn.allocate_id()), kind=kind)
    return add(txn, new if reserved is None else replace(new, commit_id=txn.allocate_id()))


def make_parent(txn: WriteTransaction, name: str) -> tuple[DirectoryId, str]:
    """Make the directory of a new segment, with its missing parents; return its id and the name inside it.

    Raises NotDirectory or InvalidRequest.
    """
    parts = names.split(name)
    if not parts:
        raise InvalidRequest("a segment needs a name")
    names.require_unreserved(name)
    return directories.make_directories(txn, parts[:-1]), parts[-1]


def make_directory(txn: WriteTransaction, name: str) -> None:
    """Make a directory with its missing parents; idempotent. Raises NotDirectory or InvalidRequest."""
    parts = names.split(name)
    if parts:
        names.require_unreserved(name)
        directories.make_directories(txn, parts)


def add(txn: WriteTransaction, new: SegmentRecord) -> SegmentRecord:
    """Put a new segment into its directory, and journal it. Raises AlreadyExists."""
    return add_dated(txn, replace(new, created_ms=txn.now_ms, modified_ms=txn.now_ms, changed_ms=txn.now_ms))


def add_dated(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Do the same as `add` for a segment with its times set."""
    directories.add_entry(txn, segment.parent_id, Entry(segment.name, EntryKind.SEGMENT, segment.id))
    changes.put_segment(txn, segment)
    return segment


def note_file(txn: WriteTransaction, name: str, file: IngestedFile) -> None:
    """Record mode and time of the file that a segment is a copy of, unless the segment has grown since."""
    segment = directories.segment_by_name(txn, name)
    if segment.length == file.length and segment.file != file:
        txn.touch(inode=segment.inode)
        changes.put_segment(txn, replace(segment, file=file, changed_ms=txn.now_ms))


def name_of_copy(directory: str) -> str:
    """Return the name that `cp -r` gives a copy of the directory; "" where it copies its content alone, as of `d/.`."""
    name = os.path.basename(directory.rstrip("/"))
    return "" if name in (".", "..") else name


class CopiedDirectories:
    """Modes of the directories that files are copied from, for the directories of the store they become.

    Where several become the same one, it has the permissions that all of them give.
    """

    def __init__(self, into: str) -> None:
        self._into = names.split(into)
        self._seen: set[tuple[str, str]] = set()
        self._modes: dict[str, int] = {}

    def add(self, directory: str, path: str, name: str = "") -> None:
        """Note the directories that lead to a path below `directory`, this one included. Raises a TierfsError.

        A path that ends in a slash is a directory itself.

        `name` is that of `directory` below the target; "" if it becomes the target itself.
        """
        while True:
            path = os.path.dirname(path)
            if (directory, path) in self._seen:
                return
            self._seen.add((directory, path))
            with map_os_errors(path):
                mode = os.stat(os.path.join(directory, path)).st_mode
            target = names.join((*self._into, *map(names.from_os, (*names.split(name), *names.split(path)))))
            self._modes[target] = mode & self._modes.get(target, mode)
            if not path:
                return

    def write(self, metadata: MetadataStore) -> None:
        """Give the directories of the store their modes, and make those that are missing.

        To be done before the first file is in one of them: nobody may read it meanwhile.
        """
        with metadata.read() as txn:
            left = sorted(item for item in self._modes.items() if _mode_at(txn, item[0]) != item[1])
        for at in range(0, len(left), _DIRECTORIES_PER_COMMIT):
            with metadata.write() as writer:
                for name, mode in left[at : at + _DIRECTORIES_PER_COMMIT]:
                    with suppress(NotDirectory, InvalidRequest):  # so are the files in it, which tell
                        _note_directory(writer, name, mode)


# Others wait for a commit: this one takes some 20 ms (a guess from that of as many segments).
_DIRECTORIES_PER_COMMIT = 256


def _mode_at(txn: ReadTransaction, name: str) -> int | None:
    with suppress(NotDirectory):
        entry = directories.find(txn, name)
        if entry is not None and entry.kind is EntryKind.DIRECTORY:
            return directories.directory(txn, entry.id).mode
    return None


def _note_directory(txn: WriteTransaction, name: str, mode: int) -> None:
    make_directory(txn, name)
    record = replace(directories.directory(txn, directories.must_find(txn, name).id), mode=mode)
    changes.put(txn, DIRECTORIES, record)
    txn.touch(inode=record.inode)


def write(txn: WriteTransaction, segment: SegmentRecord, *, successor_id: int = 0) -> SegmentRecord:
    """Write the segment as sealed, and notify mounts and the journal.

    It is sealed by policy if it has a successor, else by the user. An earlier time of sealing is kept.
    """
    sealed = replace(
        segment,
        status=SegmentStatus.SEALED_BY_POLICY if successor_id else SegmentStatus.SEALED,
        successor_id=successor_id,
        active=False,
        resumable=False,
        grows_from=0,
        sealed_ms=segment.sealed_ms or txn.now_ms,
        changed_ms=txn.now_ms,
    )
    changes.put_segment(txn, sealed)
    if sealed.kind is SegmentKind.LEDGER:
        _close_ledger(txn, sealed)
    txn.touch(inode=sealed.inode, segment_id=sealed.id)
    return sealed


def _close_ledger(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Record the ledger's final entries and bytes. Its id is the name's, or the segment's own number."""
    ledger_id = names.ledger_id(segment.name)
    ledger = entries.find(txn, segment.id)
    closed = replace(
        ledger,
        ledger_id=ledger.ledger_id or (segment.id if ledger_id is None else ledger_id),
        entries=entries.count(txn, segment.id),
        bytes=segment.length,
        timestamp_ms=segment.sealed_ms,
    )
    entries.put_ledger(txn, closed)


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
                remedy="offload and evict make room: tierfs offload PATH && tierfs evict PATH",
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


@dataclass(slots=True)
class Parent:
    """A directory of a batch, looked up once."""

    record: DirectoryRecord
    chunk_bytes: int = 0
    """By policy, once it was looked up."""
    gained: bool = False


class SegmentBuilder:
    """Makes many segments with all their bytes, in one transaction; each directory is looked up and changed once."""

    def __init__(self, txn: WriteTransaction, *, seal: bool) -> None:
        self._txn = txn
        self._seal = seal
        self._parents: dict[tuple[str, ...], Parent] = {}
        self.store_epoch = txn.store.store_epoch

    def parent(self, name: str) -> Parent:
        """Return the directory of a segment, made if it is missing. Raises NotDirectory or InvalidRequest."""
        parts = names.split(name)[:-1]
        parent = self._parents.get(parts)
        if parent is not None and parts:
            return parent
        parent_id, _ = make_parent(self._txn, name)  # of the root each time: it refuses reserved names there
        if parent is None:
            parent = self._parents[parts] = Parent(directories.directory(self._txn, parent_id))
        return parent

    def make(
        self, number: SegmentId, name: str, length: int, file: IngestedFile, chain: Callable[[], TierState] = TierState
    ) -> SegmentRecord:
        """Put a segment into its directory, and return its record, which the caller writes with its chains.

        `chain` makes the local one. Raises as `parent`, and AlreadyExists.
        """
        parent, last, now_ms = self.parent(name), names.split(name)[-1], self._txn.now_ms
        directories.put_entry(self._txn, parent.record.id, Entry(last, EntryKind.SEGMENT, number))
        parent.gained = True
        self._txn.touch(parent_inode=parent.record.inode, name=last, segment_id=number)
        return SegmentRecord(
            id=number,
            parent_id=parent.record.id,
            name=last,
            inode=Inode(self._txn.allocate_id()),
            length=length,
            status=SegmentStatus.SEALED if self._seal else SegmentStatus.OPEN,
            local=chain(),
            created_ms=now_ms,
            modified_ms=now_ms,
            changed_ms=now_ms,
            sealed_ms=now_ms if self._seal else 0,
            first_byte_ms=now_ms if length else 0,
            commit_id=self._txn.allocate_id(),  # the id was reserved before, while others committed
            file=file,
        )

    def end(self) -> None:
        """Change the directories."""
        for parent in self._parents.values():
            if parent.gained:
                directories.modify(self._txn, parent.record)


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
