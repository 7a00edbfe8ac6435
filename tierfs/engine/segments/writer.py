"""SegmentWriter: the writer of one segment in one process. Threads may share it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.system.clock import Clock
from tierfs.base.system.deadlines import Deadline
from tierfs.base.system.os_errors import ours
from tierfs.base.system.osio import write_all
from tierfs.base.words import errors, names
from tierfs.base.words.errors import Closed, Conflict, InvalidRequest, NotFound, Sealed, StorageFull, TierfsError
from tierfs.base.words.types import Ack, AttemptId, ByteRange, SegmentKind
from tierfs.engine.chunkstore.local_files import ChunkFiles, file_name
from tierfs.engine.metadata.append_keys import AppendKey
from tierfs.engine.metadata.followed_range import FollowedRange
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.segments import ownership, streams
from tierfs.engine.segments.active_chunk import ActiveChunk, ChunkDescriptors, ChunkEnded, resume
from tierfs.engine.segments.append import AppendPiece, PendingAppend, Writing, joined, require_offset, split
from tierfs.engine.segments.group_commit import AppendCall, GroupCommit, PendingCommit
from tierfs.engine.segments.ownership import Continued, StaleBase
from tierfs.engine.segments.seal import Moved

log = logging.getLogger(__name__)

# Longest entry of a ledger: its length is a Java int in Pulsar's blocks.
MAX_ENTRY_BYTES = 2**31 - 1

# Times an append is written again after the failure of an earlier one of another caller.
_MAX_REWRITES = 8

# Bytes of small appends that are copied together to be written at once; a copy of more costs as much as a write.
_JOINED_BYTES = 256 * 1024

_KEEP_FAILING = Closed("earlier appends to the segment keep failing")


@dataclass(frozen=True, slots=True)
class WriterTools:
    """The parts that all writers of an engine share."""

    metadata: MetadataStore
    files: ChunkFiles
    descriptors: ChunkDescriptors
    commits_of: Callable[[Ack], GroupCommit]
    clock: Clock
    free_space_floor_bytes: int
    require_process: Callable[[], None]
    """Raises Closed in a child of the engine's process: both would write to the same file."""
    move: Callable[[SegmentWriter], Moved | None]
    """Moves a writer to its segment's successor; None when the segment cannot be continued."""


class SegmentWriter:
    """Appends to one segment in order. Made by Engine.open_writer; close it to let other processes write at once.

    When policy seals the segment, the writer moves to the successor: offsets continue, and callers do not notice.
    It moves between two appends, so that each lies in one segment.
    """

    def __init__(
        self,
        tools: WriterTools,
        name: str,
        segment: SegmentRecord,
        policy: Policy,
        *,
        one_segment: bool = False,
        ack: Ack | None = None,
    ) -> None:
        """Write to a segment as its policy says, but for `ack`, if given."""
        self.name = name
        self._tools = tools
        self._one_segment = one_segment
        self._ack = ack
        self._lock = threading.Lock()
        self._segment = segment
        self.policy = policy
        """That of its segment when the writer was opened, or moved there."""
        self._is_stale = False
        self._chunk: ActiveChunk | None = None
        self._write_to(segment, policy)
        self._resumable = False
        self._closed = False
        if segment.active:
            self._chunk = resume(tools.metadata, tools.files, segment, name)

    @property
    def length(self) -> int:
        """Return the end of the segment, including bytes not yet committed."""
        return self._length

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more appends: it was closed, replaced, or has sealed its segment."""
        return self._closed

    def append(
        self, data: Buffer, *, expected_offset: int | None = None, last: bool = False, seal: bool = False
    ) -> ByteRange:
        """Append all of `data` and return its range, once it is durable.

        `last` announces the close of this writer: its chunk can be continued by the next process. `seal` ends the
        segment. Raises OffsetMismatch, Sealed, Fenced, NotFound, StorageFull, Unavailable or Closed, with none of
        `data` in the segment.
        """
        return self._append(data, (), expected_offset, last=last, seal=seal).range

    def append_entries(self, payloads: Sequence[Buffer], *, last: bool = False, seal: bool = False) -> range:
        """Append entries to a ledger, all or none, and return their ids once they are durable; raises as `append`."""
        lengths = [len(payload) for payload in payloads]
        if max(lengths, default=0) > MAX_ENTRY_BYTES:
            raise InvalidRequest(f"an entry of {max(lengths)} bytes is longer than {MAX_ENTRY_BYTES}: split it")
        first = self._append(b"".join(payloads), lengths, last=last, seal=seal).first_entry_id
        return range(first, first + len(lengths))

    def _append(
        self,
        data: Buffer,
        entries: Sequence[int],
        expected_offset: int | None = None,
        *,
        last: bool = False,
        seal: bool = False,
    ) -> AppendCall:
        self._tools.require_process()
        view = memoryview(data).cast("B")
        if (view or entries) and bool(entries) is not (self._segment.kind is SegmentKind.LEDGER):
            kind = "takes bytes" if entries else "is a ledger: it takes entries"
            raise InvalidRequest(f"{names.printable(self.name)} {kind}")
        deadline = self._commits.deadline() if self._commits.waits_for_servers else None
        for _ in range(_MAX_REWRITES):
            call = AppendCall(self, view, entries, expected_offset, last=last, seal=seal, deadline=deadline)
            try:
                self._commits.submit(call)
                return call
            except (StaleBase, ChunkEnded):
                continue
        raise Closed(f"segment {names.printable(self.name)}: earlier appends keep failing")

    @property
    def acknowledges_cold(self) -> bool:
        """Whether an append waits for the bucket."""
        return (self._ack or self.policy.ack) is Ack.COLD

    def acknowledges(self, ack: Ack | None) -> bool:
        """Return whether a writer opened with this `ack` would acknowledge appends as this one does."""
        return ((ack or self.policy.ack) is Ack.COLD) is self.acknowledges_cold

    def _call(self, append: PlannedAppend) -> AppendCall:
        """Return an append as a call. Raises Closed in a child of fork."""
        self._tools.require_process()
        data = memoryview(append.data).cast("B")
        call = AppendCall(self, data, (), append.expected_offset, last=append.last or append.seal, seal=append.seal)
        call.key, call.followed, call.deadline = append.key, append.followed, append.deadline
        return call

    def close(self) -> None:
        """Stop writing. Mark the chunk resumable unless the last append did; idempotent.

        Raises Closed in a child of fork and nothing else: every append has had its result, and without the mark the
        next writer merely starts another chunk.
        """
        self._tools.require_process()
        if self._closed:
            return
        try:
            if not self._resumable and self._chunk is not None:
                self.append(b"", last=True)
        except TierfsError as exc:
            expected = isinstance(exc, Conflict | NotFound)
            log.log(
                logging.DEBUG if expected else logging.INFO,
                "%s: its chunk is not marked resumable: %s",
                names.printable(self.name),
                exc,
            )
        self.abandon()

    def abandon(self) -> None:
        """Stop writing without a commit, as a crash would; committed bytes stay."""
        self._closed = True
        with self._lock:
            self._forget_chunk()

    def gather(self, calls: Sequence[AppendCall]) -> tuple[PendingAppend | None, Sequence[AppendCall]]:
        """See Appender: write the bytes of calls behind each other; for the thread that leads a group."""
        with self._lock:
            if self._closed:
                raise Closed(f"the writer of {names.printable(self.name)} is closed")
            if self._is_stale:
                self._catch_up()
            taken, later = self._take(calls)
            return (self._write(taken) if taken else None), later

    def settle(self, pending: PendingCommit) -> None:
        """See Appender: remember a failure, or the end of what may be written; seal the files that were filled.

        The bytes are committed: no error here may fail the append, as its caller would append them again. The new files
        of a change that was refused go at once; of one that may have happened, the group decides.
        """
        assert isinstance(pending, PendingAppend)
        if pending.error is not None:
            self._is_stale = True
            if not pending.is_unsure:
                self._remove(pending.begun)
            return
        self._removals = pending.removals
        self._stream = pending.stream
        self._closed = self._closed or pending.seal
        self._resumable = pending.last or pending.seal
        for chunk in pending.filled:
            self._tools.descriptors.close(chunk)  # the sync before the commit opened it again
            self._tools.files.protect(chunk.name)
        if pending.seal and self._chunk is not None:
            self._tools.descriptors.close(self._chunk)  # else an evicted file would keep its bytes on the disk
            self._tools.files.protect(self._chunk.name)

    def _take(self, calls: Sequence[AppendCall]) -> tuple[list[AppendCall], Sequence[AppendCall]]:
        """Give calls their ranges, up to the end of the segment; return them, and those behind that end.

        Moves to the successor if the segment is to end before the first of them.
        """
        taken: list[AppendCall] = []
        end = self._length
        free_bytes = self._tools.files.free_bytes()
        for number, call in enumerate(calls):
            size_bytes = len(call.data)
            try:
                self._require_possible(call, end, free_bytes)
            except TierfsError as exc:
                call.error = exc
                continue
            if size_bytes and self._is_limited and self._ends_at(end):
                if taken:
                    return taken, calls[number:]
                self._move()
                end = self._length
            if end == self._segment.first_offset:
                self._segment = replace(self._segment, first_byte_ms=self._tools.clock.now_ms())
            call.range = ByteRange(end, end + size_bytes)
            end += size_bytes
            free_bytes -= size_bytes
            taken.append(call)
            if call.seal:
                return taken, calls[number + 1 :]
        return taken, ()

    def _write(self, calls: Sequence[AppendCall]) -> PendingAppend:
        """Write the bytes to chunk files; undone when a write fails."""
        before = _Before(self._chunk, self._length)
        written: list[_Written] = []
        try:
            for data in joined([call.data for call in calls], _JOINED_BYTES):
                room = self._chunk_bytes - self._chunk.grid.length_bytes if self._chunk is not None else 0
                for part in split(data, max(0, room), self._chunk_bytes):
                    self._write_part(part, written)
        except BaseException:
            self._undo(before, written)
            raise
        pieces = [piece.ended(self._chunk_bytes) for piece in written]
        writing = Writing(
            self.segment_id,
            self.name,
            self._stream,
            self.epoch,
            before.length,
            self._removals,
            self._chunk is not None,
        )
        return PendingAppend(writing, calls, pieces, self._tools.descriptors)

    def _write_part(self, part: memoryview, written: list[_Written]) -> None:
        """Write bytes that fit into one chunk."""
        begins = self._chunk is None or self._chunk.grid.length_bytes >= self._chunk_bytes
        if begins:
            if self._chunk is not None:
                self._tools.descriptors.close(self._chunk)
            self._chunk = self._new_chunk()
        chunk = self._chunk
        assert chunk is not None
        if begins or not written:
            written.append(_Written(chunk, begins))
        with self._tools.descriptors.use(chunk) as fd:
            try:
                write_all(fd, part, chunk.grid.length_bytes)
            except OSError as exc:
                raise ours(exc, chunk.name) from exc
        chunk.grid.feed(part)
        written[-1].length += len(part)
        self._length += len(part)

    def _new_chunk(self) -> ActiveChunk:
        attempt = AttemptId(new_id())
        chunk = ActiveChunk(file_name(self.segment_id, self._length, attempt), attempt, self._length)
        self._tools.descriptors.create(chunk)
        return chunk

    def _undo(self, before: _Before, written: Sequence[_Written]) -> None:
        """Delete the files of a write that failed half-way; the next one starts a new chunk.

        The old chunk's bytes beyond its committed length belong to no record and may stay.
        """
        fresh = {id(piece.chunk): piece.chunk for piece in written if piece.begins_chunk}
        if self._chunk is not None and self._chunk is not before.chunk:
            fresh[id(self._chunk)] = self._chunk
        self._remove(fresh.values())
        if before.chunk is not None:
            self._tools.descriptors.close(before.chunk)
        self._chunk = None
        self._length = before.length

    def _remove(self, chunks: Iterable[ActiveChunk]) -> None:
        """Remove files that this writer made, and that no commit can name."""
        for chunk in chunks:
            self._tools.descriptors.close(chunk)
            self._tools.files.discard(chunk.name)

    def _catch_up(self) -> None:
        """After a failed commit, take the store's length and drop the active chunk."""
        try:
            with self._tools.metadata.read() as txn:
                segment = ownership.require_current(txn, self.segment_id, self.epoch, self.name)
        except Continued as exc:
            if self._one_segment:
                raise Sealed(f"segment {names.printable(self.name)} was sealed by policy") from exc
            self._move()
            return
        self._forget_chunk()
        self._length = segment.length
        self._is_stale = False

    def _ends_at(self, length: int) -> bool:
        """Return whether policy seals the segment at this length."""
        segment = replace(self._segment, length=length)
        now_ms = self._tools.clock.now_ms()
        return streams.may_end(segment) and (
            streams.is_long(segment, self.policy) or streams.is_old(segment, self.policy, now_ms)
        )

    def _move(self) -> None:
        """Continue in the successor; a segment that cannot have one is no longer sealed by policy."""
        moved = self._tools.move(self)
        if moved is None:
            self.policy = replace(self.policy, seal_bytes=None, seal_age_s=None)
            self._is_limited = False
            return
        self._forget_chunk()
        self._write_to(moved.segment, moved.policy)

    def _write_to(self, segment: SegmentRecord, policy: Policy) -> None:
        self.segment_id = segment.id
        self.epoch = segment.writer_epoch
        self._segment = segment
        self._stream = segment.parent_id, segment.stream
        self.policy = policy
        self._commits = self._tools.commits_of(self._ack or policy.ack)
        self._is_limited = not self._one_segment and streams.is_limited(policy)
        self._chunk_bytes = policy.chunk_bytes
        self._length = segment.length
        self._removals = 0
        self._is_stale = False

    def _forget_chunk(self) -> None:
        if self._chunk is not None:
            self._tools.descriptors.close(self._chunk)
        self._chunk = None

    def _require_possible(self, call: AppendCall, end: int, free_bytes: int) -> None:
        """Raise the error of a call that expects another offset than `end`, or that the disk has no room for."""
        require_offset(self.name, call.expected_offset, end)
        if call.data and free_bytes - len(call.data) < self._tools.free_space_floor_bytes:
            raise StorageFull(
                f"cannot append to {names.printable(self.name)}: the local disk is full "
                f"({free_bytes >> 20} MiB free, {self._tools.free_space_floor_bytes >> 20} MiB are kept)",
                remedy="free space with: tierfs offload PATH && tierfs evict PATH",
            )


@dataclass(frozen=True, slots=True)
class PlannedAppend:
    """One append of many that a thread makes at once, for callers that wait elsewhere."""

    writer: SegmentWriter
    data: Buffer
    expected_offset: int | None = None
    seal: bool = False
    key: AppendKey | None = None
    """The caller has looked that no append was made under it."""
    deadline: Deadline | None = None
    """By which its caller has an answer, where it waits for a server; None: as if it began now."""
    last: bool = False
    """The writer is closed next."""
    followed: FollowedRange | None = None
    """The place of `data` in a file outside of the store, to be recorded with it."""


def append_all(appends: Sequence[PlannedAppend]) -> list[ByteRange | TierfsError]:
    """Make appends of one engine together, in order; return the range of each, once it is durable, or its error.

    The writers have to be open in this process, and hold bytes, not entries. Errors are those of SegmentWriter.append.
    """
    results: list[ByteRange | TierfsError] = [_KEEP_FAILING] * len(appends)
    waiting = list(range(len(appends)))
    for _ in range(_MAX_REWRITES):
        calls = {at: appends[at].writer._call(appends[at]) for at in waiting}
        # Of the segments that the bucket acknowledges apart: their group takes as long as a PUT.
        groups = {id(appends[at].writer._commits): appends[at].writer._commits for at in waiting}
        for key, commits in groups.items():
            commits.submit_all([call for at, call in calls.items() if id(appends[at].writer._commits) == key])
        waiting = [at for at, call in calls.items() if isinstance(call.error, StaleBase | ChunkEnded)]
        for at, call in calls.items():
            if call.error is None:
                results[at] = call.range
            elif at not in waiting and isinstance(call.error, Exception):
                results[at] = errors.unexpected(call.error, appends[at].writer.name)
    return results


@dataclass(slots=True)
class _Written:
    """Bytes that were written into one chunk file."""

    chunk: ActiveChunk
    begins_chunk: bool
    length: int = 0

    def ended(self, chunk_bytes: int) -> AppendPiece:
        """Return the piece, with the CRCs of its blocks."""
        grid = self.chunk.grid
        fills = grid.length_bytes >= chunk_bytes
        return AppendPiece(self.chunk, self.length, *grid.take(), grid.crc32c, self.begins_chunk, fills)


@dataclass(frozen=True, slots=True)
class _Before:
    """A writer's chunk and length before a write."""

    chunk: ActiveChunk | None
    length: int
