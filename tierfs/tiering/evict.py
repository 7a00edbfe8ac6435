"""Evict: drop local chunks whose bytes are safely cold (invariant 4).

The decision is made again inside the transaction that removes the chunks, from the records of that moment. The files
become garbage that is due at once; a reader that still holds them open continues to read them.

Crash order: the commit that removes the chunks is durable before a file goes (garbage/collect.py). A file whose
deletion the loss of power undid has no record and no row of garbage by then: the walk over strays removes it, so that
no directory is synced here.

Many segments share a commit, which is two syncs whatever it holds. It ends after some milliseconds, as appends of all
processes wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock
from tierfs.base.words import names
from tierfs.base.words.errors import Fenced, StorageFull, TierfsError, Unavailable
from tierfs.base.words.types import IN_PLACE, ROOT_DIRECTORY, ChunkState, ObjectId, SegmentKind, Tier
from tierfs.engine.metadata import chains, directories, entries, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import trash
from tierfs.tiering.candidates import evictable, placed_cold, runs, sealed_local_chunks, up_to
from tierfs.tiering.policy import EvictAction

# Time in the one writer's lane, before the commit, after which a batch takes no further segment: appends wait for it.
# Measured: 300 small segments, whose commit takes as long again.
_BATCH_S = 0.01

# Chunks removed per commit, and so segments.
MOST_SEGMENTS = _BATCH_CHUNKS = 1000

# Room is made step by step: what waits for some of it goes on before all of it is there.
BATCH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Evicted:
    """Chunks and bytes that were dropped, or would be."""

    chunks: int = 0
    bytes: int = 0
    more: bool = False
    """Whether the segment may have more to drop: its batch was full."""

    def plus(self, other: Evicted) -> Evicted:
        """Return the sum of both, the other one later."""
        return Evicted(self.chunks + other.chunks, self.bytes + other.bytes, other.more)

    @classmethod
    def of(cls, chunks: Sequence[ChunkRecord], *, more: bool = False) -> Evicted:
        """Return the sums of chunks."""
        return cls(len(chunks), sum(chunk.length for chunk in chunks), more)


Outcome = Evicted | TierfsError


def evict_some(
    metadata: MetadataStore, actions: Sequence[EvictAction], *, counts_archive: bool = True
) -> list[tuple[EvictAction, Outcome]]:
    """Drop the evictable local chunks of the first of these segments, as many as one commit takes: of one at least.

    Idempotent. Returns what became of each, in order; one with `more` is to be done again. An error of one segment is
    its outcome and keeps no other. Raises what concerns all: Fenced, StorageFull, Unavailable.

    `counts_archive`: whether objects in the archive place are copies, as they are not while it is not proved.
    """
    try:
        return list(zip(actions, _drop(metadata, actions, counts_archive), strict=False))
    except (Fenced, StorageFull, Unavailable):
        raise
    except TierfsError as exc:
        if len(actions) == 1:
            return [(actions[0], exc)]
    # One of them is damaged: nothing was changed, and each is done on its own.
    done: list[tuple[EvictAction, Outcome]] = []
    for action in actions:
        done += evict_some(metadata, (action,), counts_archive=counts_archive)
    return done


def _drop(metadata: MetadataStore, actions: Sequence[EvictAction], counts_archive: bool) -> list[Evicted]:
    """Drop chunks of the first segments in one commit."""
    done: list[Evicted] = []
    chunks = size = 0
    with metadata.write() as txn:
        eviction = _Eviction(txn, metadata.clock, counts_archive)
        for action in actions:
            dropped = eviction.drop(action, _BATCH_CHUNKS - chunks)
            done.append(dropped)
            chunks, size = chunks + dropped.chunks, size + dropped.bytes
            if dropped.more or chunks >= _BATCH_CHUNKS or size >= BATCH_BYTES or eviction.is_over:
                break
    return done


class _Eviction:
    """The evictions of one transaction."""

    def __init__(self, txn: WriteTransaction, clock: Clock, counts_archive: bool = True) -> None:
        self._txn = txn
        self._clock = clock
        self._counts_archive = counts_archive
        self._ends_s = clock.monotonic_s() + _BATCH_S
        self._published = txn.store.journal.published_sequence
        self._going: dict[int, bool] = {}
        self._objects: dict[ObjectId, ObjectRecord] = {}
        """Cold objects: nothing here changes them, and thousands of segments share a pack."""

    @property
    def is_over(self) -> bool:
        """Whether it has taken its time."""
        return self._clock.monotonic_s() >= self._ends_s

    def drop(self, action: EvictAction, most: int) -> Evicted:
        """Drop up to so many evictable local chunks of a segment."""
        lone = chains.lone_chunk(self._txn, action.segment_id)
        if lone is not None and self._may_go(lone, action) and chains.drop_lone(self._txn, lone):
            return Evicted(1, lone.local.length)
        segment = directories.segment(self._txn, action.segment_id)
        if segment is None or not segment.local.count:
            return Evicted()
        chunks = list(islice(_evictable(self._txn, segment, action, self._counts_archive), most + 1))
        if not chunks:
            return Evicted()
        self._remove(segment, chunks[:most])
        return Evicted.of(chunks[:most], more=len(chunks) > most)

    def _may_go(self, lone: chains.LoneChunk, action: EvictAction) -> bool:
        """Return whether `_evictable` yields this chunk, and the segment is not in the trash, whose sums would change.

        False is no answer: then `_evictable` gives it.
        """
        segment, local, cold = lone.segment, lone.local, lone.cold
        end, cold_end = local.start_offset + local.length, cold.start_offset + cold.length
        wanted = max(local.start_offset, segment.start_offset)
        if cold.state != ChunkState.GOOD or not cold.start_offset <= wanted < end <= cold_end:
            return False
        if (action.end is not None and end > action.end) or self._is_going(segment.parent_id, segment.name):
            return False
        held = self._object(ObjectId(cold.object_id))
        if held.archive_class == IN_PLACE and not self._counts_archive:
            return False
        return held.linked_sequence <= self._published and held.created_ms <= action.cold_before_ms

    def _object(self, object_id: ObjectId) -> ObjectRecord:
        if object_id not in self._objects:
            self._objects[object_id] = chains.object_by_id(self._txn, object_id)
        return self._objects[object_id]

    def _is_going(self, parent_id: int, name: str) -> bool:
        """Return whether a segment is, or is below, a removed entry, in the trash or not."""
        if parent_id == ROOT_DIRECTORY:
            return names.is_removed(name)
        if parent_id not in self._going:
            top = directories.top(self._txn, directories.directory(self._txn, parent_id))
            self._going[parent_id] = names.is_removed(top.name)
        return self._going[parent_id]

    def _remove(self, segment: SegmentRecord, chunks: Sequence[ChunkRecord]) -> None:
        txn, editor = self._txn, Editor(self._txn, segment)
        for run in runs(chunks):
            editor.remove(Tier.LOCAL, run, due_ms=txn.now_ms)
        segment = editor.segment
        txn.put(SEGMENTS, tables.u64(segment.id), segment)
        trash.note_evicted(txn, segment, sum(chunk.length for chunk in chunks))
        _note_ledger(txn, segment)
        txn.touch(inode=segment.inode, segment_id=segment.id)


def _note_ledger(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Record in a ledger's context that its local bytes are deleted, before their files are (PIP-17)."""
    if segment.kind is not SegmentKind.LEDGER or segment.local.count:
        return
    ledger = entries.find(txn, segment.id)
    if ledger.offload.complete and not ledger.offload.local_deleted:
        entries.put_ledger(txn, replace(ledger, offload=replace(ledger.offload, local_deleted=True)))


def would_evict(txn: ReadTransaction, segment: SegmentRecord, action: EvictAction, *, ended: bool = False) -> Evicted:
    """Count the chunks that an eviction would drop now; `ended`: the active one too, as if it had ended."""
    total, segment = Evicted(), replace(segment, active=segment.active and not ended)
    for chunk in _evictable(txn, segment, action):
        total = total.plus(Evicted(1, chunk.length))
    return total


def _evictable(
    txn: ReadTransaction, segment: SegmentRecord, action: EvictAction, counts_archive: bool = True
) -> Iterator[ChunkRecord]:
    placed = placed_cold(txn, segment)
    return evictable(
        up_to(action.end, sealed_local_chunks(txn, segment)),
        placed if counts_archive else (each for each in placed if each.object.archive_class != IN_PLACE),
        published_sequence=txn.store.journal.published_sequence,
        cold_before_ms=action.cold_before_ms,
        start_offset=segment.start_offset,
    )
