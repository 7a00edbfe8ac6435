"""Engine: the verbs on the segments of one store, for one process. Thread-safe; close it when done.

An append must start fast: verbs that it never needs are imported when they are called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.options.config import WriteSettings
from tierfs.base.options.policy import Policy
from tierfs.base.system import osio
from tierfs.base.system.clock import Clock
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest, StorageFull, no_cold_tier
from tierfs.base.words.types import Ack, ByteRange, EntryKind, SegmentId, SegmentKind
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments import active_chunk, create, ownership, seal, streams
from tierfs.engine.segments.active_chunk import ChunkDescriptors
from tierfs.engine.segments.append import require_offset
from tierfs.engine.segments.bulk_create import BulkCreator
from tierfs.engine.segments.group_commit import GroupCommit
from tierfs.engine.segments.seal import Moved
from tierfs.engine.segments.writer import SegmentWriter, WriterTools
from tierfs.engine.segments.writer_locks import WriterLocks

if TYPE_CHECKING:
    from tierfs.engine.segments.concat import Concatenation
    from tierfs.engine.segments.delete import Deletion
    from tierfs.engine.segments.positions import Position
    from tierfs.engine.segments.truncate import Truncation


class Engine:
    """Creates, appends to, seals, truncates, concatenates and deletes segments.

    A child of fork must open its own: verbs that need a writer's lock raise Closed in it, and so does every writer.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        locks_path: Path,
        clock: Clock,
        settings: WriteSettings,
        pool: Callable[[ChunkDescriptors], GroupCommit] | None = None,
    ) -> None:
        """Open the locks; `locks_path` is the file whose bytes are the writers' locks, shared by all processes.

        `pool` makes the group commit of appends that the cold tier acknowledges (tiering/packs/append_pool.py).
        """
        self.metadata = metadata
        self.files = files
        self._clock = clock
        self.locks = WriterLocks(locks_path)
        """Of the writers; a change that ends or fences a segment asks them for one that lives."""
        descriptors = ChunkDescriptors(files, osio.open_files_within_limit(settings.open_chunks))
        self._make_pool = pool
        self._commits = {Ack.LOCAL: GroupCommit(metadata, descriptors)}
        self._commits_lock = threading.Lock()
        self._tools = WriterTools(
            metadata,
            files,
            descriptors,
            self.commits_of,
            clock,
            settings.free_space_floor_bytes,
            self.locks.require_process,
            self._move,
        )
        self._writers: dict[SegmentId, SegmentWriter] = {}
        self._lock = threading.Lock()

    @property
    def free_space_floor_bytes(self) -> int:
        """Return the free space of the local disk below which appends are refused."""
        return self._tools.free_space_floor_bytes

    def make_directory(self, name: str) -> None:
        """Make a directory with its missing parents; see create.make_directory."""
        with self.metadata.write() as txn:
            create.make_directory(txn, name)

    def open_ledger(self, name: str, *, take_over: bool = False) -> SegmentWriter:
        """Become the writer of an existing ledger; entries are added by `append_entries`.

        Raises NotFound, Sealed for a closed ledger, InvalidRequest for another segment, and as `open_writer`.
        """
        return self._open(name, SegmentKind.LEDGER, None, take_over=take_over, one_segment=True, new=False)

    def open_writer(
        self,
        name: str,
        *,
        expected_offset: int | None = None,
        take_over: bool = False,
        one_segment: bool = False,
        new: bool = False,
        ack: Ack | None = None,
    ) -> SegmentWriter:
        """Become the writer of a segment, creating it and its directories when they are missing.

        The name of a stream means its newest segment, and the writer moves to successors by itself, unless
        `one_segment` keeps all its appends together. With `new`, an existing segment raises AlreadyExists. `ack` is
        stronger than the segment's policy. Raises Conflict naming a live writer, of this process or another (unless
        `take_over`), Sealed, OffsetMismatch, IsDirectory, NotDirectory, StorageFull, NoColdTier or InvalidRequest (also
        for a ledger), with nothing created.
        """
        return self._open(
            name, SegmentKind.BYTES, expected_offset, take_over=take_over, one_segment=one_segment, new=new, ack=ack
        )

    def _open(
        self,
        name: str,
        kind: SegmentKind,
        expected_offset: int | None,
        *,
        take_over: bool,
        one_segment: bool,
        new: bool,
        ack: Ack | None = None,
    ) -> SegmentWriter:
        self.locks.require_process()
        self._require_floor(name)
        with self._lock:
            registered = self._register(name, kind, expected_offset, take_over=take_over, new=new, ack=ack)
            return self._made_writer(name, *registered, one_segment=one_segment, ack=ack)

    def open_writers(self, expected_offsets: Mapping[str, int]) -> dict[str, SegmentWriter]:
        """Become the writer of segments, by their names and lengths, in one commit; see `open_writer`.

        Raises the error of the first one that cannot be opened; none is opened then.
        """
        self.locks.require_process()
        before: list[SegmentRecord] = []
        with self._lock:
            try:
                with self.metadata.write() as txn:
                    registered = [
                        self._register_in(txn, name, SegmentKind.BYTES, length, before)
                        for name, length in expected_offsets.items()
                    ]
            except BaseException:
                for each in before:
                    self._release(each)
                raise
            for each in before:
                self.locks.unlock(each.id, each.writer_epoch)
            return {
                name: self._made_writer(name, *each) for name, each in zip(expected_offsets, registered, strict=True)
            }

    def _made_writer(
        self,
        name: str,
        segment: SegmentRecord,
        policy: Policy,
        ended: str | None,
        *,
        one_segment: bool = False,
        ack: Ack | None = None,
    ) -> SegmentWriter:
        """Return the writer of a segment that is registered. Called under the lock."""
        try:
            own = self._writers.pop(segment.id, None)
            if own is not None:
                own.abandon()
            if ended is not None:
                self.files.protect(ended)
            canonical = names.join(names.split(name))
            writer = SegmentWriter(self._tools, canonical, segment, policy, one_segment=one_segment, ack=ack)
        except BaseException:
            self.locks.unlock(segment.id, segment.writer_epoch)
            raise
        self._writers[segment.id] = writer
        return writer

    def in_time(self, name: str, ack: Ack | None = None) -> AbstractContextManager[None]:
        """Bound what the block waits for as an append to a segment that begins now, the opening of its writer included.

        An append that the local disk acknowledges waits for no server, and has no such bound. Raises NotDirectory and
        InvalidRequest, as `open_writer`.
        """
        deadline = self.commits_of(Ack.COLD).deadline() if self._acknowledges_cold(name, ack) else None
        return nullcontext() if deadline is None else deadline.in_force()

    def _acknowledges_cold(self, name: str, ack: Ack | None) -> bool:
        if ack is not None or self._make_pool is None:
            return ack is Ack.COLD and self._make_pool is not None
        path = names.join(names.split(name))
        with self.metadata.read() as txn:
            while directories.find(txn, path) is None:  # as the segment that is made there inherits it
                path = path.rpartition("/")[0]
            return policies.at(txn, path).values.ack is Ack.COLD

    def own_writer(self, name: str) -> SegmentWriter | None:
        """Return the open writer that this process has of a segment, or of a stream by any member's name."""
        with self.metadata.read() as txn:
            entry = directories.find(txn, name)
            if entry is None or entry.kind is EntryKind.DIRECTORY:
                return None
            segment = streams.newest(txn, directories.segment_by_name(txn, name))
            # The writer of a segment that policy sealed moves to the successor with its next append.
            before = directories.segment(txn, SegmentId(segment.predecessor_id)) if segment.predecessor_id else None
        for each in (segment, before):
            if each is not None and (own := self._own(each)) is not None:
                return own
        return None

    def _own(self, segment: SegmentRecord) -> SegmentWriter | None:
        """Return the writer of this process, unless it was closed, or fenced by a later one."""
        own = self._writers.get(segment.id)
        return own if own is not None and not own.is_closed and own.epoch == segment.writer_epoch else None

    def close_writer(self, writer: SegmentWriter) -> None:
        """Close a writer and release its lock at once; idempotent. Raises Closed in a child of fork."""
        self.locks.require_process()
        try:
            writer.close()
        finally:
            self._forget(writer)

    def confirm(self, name: str, added: ByteRange, ack: Ack) -> None:
        """Return once an append that is committed may be acknowledged again, as `ack` has it. Raises as an append."""
        self.commits_of(ack).confirm(name, added)

    def bulk_creator(self) -> BulkCreator:
        """Return a creator of batches of small segments; the caller closes it."""
        return BulkCreator(self.metadata, self.files, self._tools.free_space_floor_bytes)

    def seal(self, name: str) -> SegmentRecord:
        """End a segment for good; repeating it succeeds. Raises NotFound, or Conflict naming a live writer."""
        segment, ended = seal.seal(self.metadata, self.locks, name)
        if ended is not None:
            self.files.protect(ended)
        return segment

    def unseal(self, name: str) -> tuple[SegmentRecord, bool]:
        """Open a sealed segment again; see seal.unseal."""
        return seal.unseal(self.metadata, name)

    def roll(self, segment_id: SegmentId) -> None:
        """End the active chunk, so that it can be offloaded; idempotent."""
        ended = seal.roll(self.metadata, segment_id)
        if ended is not None:
            self.files.protect(ended)

    def end_if_due(self, segment_id: SegmentId, *, now_ms: int | None = None) -> bool:
        """Seal a segment if it is long or old enough by policy, and create its successor; return whether it was due.

        `now_ms`: the time by which it is old, if not the present one. A ledger is closed; the next one is created with
        the next entry of its managed ledger.
        """
        from tierfs.engine.segments import ledgers

        with self.metadata.write() as txn:
            at_ms = txn.now_ms if now_ms is None else now_ms
            closed, ended = ledgers.close_if_due(txn, self.locks, segment_id, now_ms=at_ms)
            done = seal.end_if_due(txn, self.locks, segment_id, now_ms=at_ms)
        if closed and ended is not None:
            self.files.protect(ended)
        if done is None:
            return closed
        if done[1] is not None:
            self.files.protect(done[1])
        return True

    def terminate_managed_ledger(self, path: str) -> Position | None:
        """Close all ledgers of a managed ledger and refuse further ones; see ledgers.terminate."""
        from tierfs.engine.segments import ledgers

        with self.metadata.write() as txn:
            last, ended = ledgers.terminate(txn, self.locks, path)
        for name in ended:
            self.files.protect(name)
        return last

    def truncate(self, name: str, before_offset: int, *, cold_due_ms: int) -> Truncation:
        """Drop a segment's bytes below an offset; see truncate.truncate."""
        from tierfs.engine.segments import truncate

        return truncate.truncate(self.metadata, name, before_offset, cold_due_ms=cold_due_ms)

    def concat(self, target: str, source: str) -> Concatenation:
        """Append a sealed segment's bytes to another segment, and remove its name; see concat.concat."""
        from tierfs.engine.segments import concat

        done, ended = concat.concat(self.metadata, self.locks, target, source)
        if ended is not None:
            self.files.protect(ended)
        return done

    def remove(
        self, txn: WriteTransaction, segment: SegmentRecord, *, cold_due_ms: int, to_trash: bool = False
    ) -> Deletion:
        """Delete one segment inside a transaction; raises Conflict while it has a writer, also in this process.

        The writer of a segment sealed by policy needs its record to find the successor at its next append.
        """
        from tierfs.engine.segments import delete

        if segment.id in self._writers:
            raise ownership.live_writer_conflict(txn, segment)
        return delete.remove_segment(txn, self.locks, segment, cold_due_ms=cold_due_ms, to_trash=to_trash)

    def delete(
        self, path: str, *, recursive: bool, cold_due_ms: int, to_trash: bool = False, report: OnProgress = unseen
    ) -> Deletion:
        """Delete a segment or, with `recursive`, a directory; see delete.delete."""
        from tierfs.engine.segments import delete

        return delete.delete(
            self.metadata,
            self.locks,
            path,
            recursive=recursive,
            cold_due_ms=cold_due_ms,
            to_trash=to_trash,
            report=report,
        )

    def close(self) -> None:
        """Close all writers and the locks. Does nothing in a child of fork: they are the parent's."""
        if self.locks.is_inherited:
            return
        for writer in list(self._writers.values()):
            self.close_writer(writer)
        for commits in self._commits.values():
            commits.close()
        self.locks.close()

    def commits_of(self, ack: Ack) -> GroupCommit:
        """Return the group commit of appends that are acknowledged so; that of the cold tier is made when asked for."""
        with self._commits_lock:
            if ack not in self._commits:
                assert self._make_pool is not None, "set when the segment was opened"
                self._commits[ack] = self._make_pool(self._tools.descriptors)
            return self._commits[ack]

    def _require_pool(self, txn: WriteTransaction, segment: SegmentRecord, name: str) -> None:
        """Raise the error of an append that the cold tier cannot acknowledge."""
        shown = names.printable(name)
        if segment.kind is SegmentKind.LEDGER:
            raise InvalidRequest(
                f"{shown} is a ledger: its entries can only be acknowledged by the local disk",
                remedy=f"tierfs config {names.as_word(name)} ack=local",
            )
        if self._make_pool is None or not txn.store.cold_location_id:
            raise no_cold_tier(f"an append to {shown} with ack=cold")

    def _register(
        self, name: str, kind: SegmentKind, expected_offset: int | None, *, take_over: bool, new: bool, ack: Ack | None
    ) -> tuple[SegmentRecord, Policy, str | None]:
        """Make this process the writer, in one commit; return segment, policy and the chunk file it ended."""
        before: list[SegmentRecord] = []
        try:
            with self.metadata.write() as txn:
                made = self._register_in(
                    txn, name, kind, expected_offset, before, take_over=take_over, new=new, ack=ack
                )
        except BaseException:
            for each in before:
                self._release(each)
            raise
        self.locks.unlock(before[0].id, before[0].writer_epoch)
        return made

    def _register_in(
        self,
        txn: WriteTransaction,
        name: str,
        kind: SegmentKind,
        expected_offset: int | None,
        before: list[SegmentRecord],
        *,
        take_over: bool = False,
        new: bool = False,
        ack: Ack | None = None,
    ) -> tuple[SegmentRecord, Policy, str | None]:
        """Do the same in a transaction; add the segment as it was to `before`, whose locks the caller releases."""
        old = create.create(txn, name, kind) if new else streams.to_append(txn, name, kind)
        before.append(old)
        require_offset(name, expected_offset, old.length)
        if not take_over and self._own(old) is not None:
            raise ownership.own_writer_conflict(old)
        active_chunk.require_whole(txn, self.files, old, name)
        segment = ownership.register(txn, old, self.locks, take_over=take_over)
        policy = policies.effective(txn, segment)
        if (ack or policy.ack) is Ack.COLD:
            self._require_pool(txn, segment, name)
            segment = seal.end_local_only(txn, segment)
        return segment, policy, None if segment.active else seal.active_file(txn, old)

    def _release(self, before: SegmentRecord) -> None:
        """Release the locks of a failed registration, except that of a writer of this process."""
        self.locks.unlock(before.id, before.writer_epoch + 1)
        own = self._writers.get(before.id)
        if own is None or own.epoch != before.writer_epoch:
            self.locks.unlock(before.id, before.writer_epoch)

    def _move(self, writer: SegmentWriter) -> Moved | None:
        """Move a writer to its segment's successor; see seal.move. Called under the writer's lock."""
        old, moved = (writer.segment_id, writer.epoch), None
        try:
            with self.metadata.write() as txn:
                moved = seal.move(txn, self.locks, *old, writer.name)
                if moved is not None:
                    # Inside the transaction, so that the next open of the same segment finds the writer here.
                    self._writers[moved.segment.id] = writer
        except BaseException:
            if moved is not None:
                del self._writers[moved.segment.id]
                self.locks.unlock(moved.segment.id, moved.segment.writer_epoch)
            raise
        if moved is None:
            return None
        if self._writers.get(old[0]) is writer:
            del self._writers[old[0]]
        self.locks.unlock(*old)
        self.locks.unlock(moved.segment.id, moved.segment.writer_epoch - 1)
        if moved.ended is not None:
            self.files.protect(moved.ended)
        return moved

    def _require_floor(self, name: str) -> None:
        floor = self._tools.free_space_floor_bytes
        free = self.files.free_bytes()
        if free < floor:
            raise StorageFull(
                f"cannot append to {names.printable(name)}: the local disk is full "
                f"({free >> 20} MiB free, {floor >> 20} MiB are kept)",
                remedy="free space: tierfs offload PATH, then tierfs evict PATH",
            )

    def _forget(self, writer: SegmentWriter) -> None:
        with self._lock:
            if self._writers.get(writer.segment_id) is writer:
                del self._writers[writer.segment_id]
                self.locks.unlock(writer.segment_id, writer.epoch)
