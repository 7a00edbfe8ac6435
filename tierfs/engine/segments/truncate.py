"""Truncate the head of a segment: its first bytes can no longer be read, and whole chunks of them go.

One commit. A chunk that holds the new start stays whole: only the segment's start offset moves inside it.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import SegmentKind, Tier
from tierfs.engine.metadata import chain, chains, changes, directories
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction


@dataclass(frozen=True, slots=True)
class Truncation:
    """The effect of a truncation, done or planned."""

    start_offset: int
    """The segment's start afterwards."""
    bytes: int = 0
    """Bytes that can no longer be read."""
    local_chunks: int = 0
    local_bytes: int = 0
    cold_chunks: int = 0
    cold_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _TruncatePlan:
    segment: SegmentRecord
    start_offset: int
    local: list[ChunkRecord]
    cold: list[ChunkRecord]

    @property
    def truncation(self) -> Truncation:
        """Return the plan's effect in numbers."""
        return Truncation(
            start_offset=self.start_offset,
            bytes=self.start_offset - self.segment.start_offset,
            local_chunks=len(self.local),
            local_bytes=sum(chunk.length for chunk in self.local),
            cold_chunks=len(self.cold),
            cold_bytes=sum(chunk.held_bytes for chunk in self.cold),
        )


def plan(txn: ReadTransaction, name: str, before_offset: int) -> Truncation:
    """Return the effect of truncating. Raises NotFound, IsDirectory, or InvalidRequest naming the length."""
    return _plan(txn, name, before_offset).truncation


def truncate(metadata: MetadataStore, name: str, before_offset: int, *, cold_due_ms: int) -> Truncation:
    """Drop the bytes below `before_offset`; idempotent, and a success if there are none.

    The segment may be sealed, and its writer continues: truncated to its end, the segment loses the active chunk
    like an evicted one, and the writer starts another. The name gets a new inode. Local files are due for deletion
    at once, cold objects at `cold_due_ms` and not before the journal says that they are gone. Raises as `plan`.
    """
    with metadata.write() as txn:
        planned = _plan(txn, name, before_offset)
        if planned.start_offset > planned.segment.start_offset:
            _apply(txn, planned, cold_due_ms)
        return planned.truncation


def cut(txn: WriteTransaction, segment: SegmentRecord, before_offset: int, *, cold_due_ms: int) -> None:
    """Drop a segment's bytes below an offset in it, as part of a transaction; see truncate."""
    _apply(txn, _plan_cut(txn, segment, before_offset), cold_due_ms)


def _plan(txn: ReadTransaction, name: str, before_offset: int) -> _TruncatePlan:
    segment = directories.segment_by_name(txn, name)
    if segment.kind is not SegmentKind.BYTES:
        raise InvalidRequest(
            f"{names.printable(name)} is a ledger: its entries stay together", remedy="delete the whole ledger"
        )
    if before_offset > segment.length:
        raise InvalidRequest(
            f"cannot trim {names.printable(name)} before {before_offset}: its length is {segment.length}",
            remedy=f"trim it before {segment.length} to empty it",
        )
    if before_offset <= segment.start_offset:
        return _TruncatePlan(segment, segment.start_offset, [], [])
    return _plan_cut(txn, segment, before_offset)


def _plan_cut(txn: ReadTransaction, segment: SegmentRecord, before_offset: int) -> _TruncatePlan:
    local, cold = (chains.ending_by(txn, segment.id, tier, before_offset) for tier in Tier)
    return _TruncatePlan(segment, before_offset, local, cold)


def _apply(txn: WriteTransaction, planned: _TruncatePlan, cold_due_ms: int) -> None:
    before = planned.segment
    changes.cold_unlinked(txn, before.id, [chunk.start_offset for chunk in planned.cold])
    _keep_rest(txn, planned)
    # The segment's own change is next and last: no object may be deleted before the journal has both.
    after = txn.store.next_outbox
    editor = Editor(txn, before).remove(Tier.LOCAL, planned.local, due_ms=txn.now_ms)
    editor.remove(Tier.COLD, planned.cold, due_ms=cold_due_ms, after_sequence=after)
    keeps_active = before.active and planned.start_offset < before.length
    shorter = replace(
        directories.renew_inode(txn, editor.segment),
        start_offset=planned.start_offset,
        generation=before.generation + 1,
        changed_ms=txn.now_ms,
        active=keeps_active,
        resumable=before.resumable and keeps_active,
    )
    changes.put_segment(txn, shorter)


def _keep_rest(txn: WriteTransaction, planned: _TruncatePlan) -> None:
    """Link the first remaining chunk again if a replay may have merged it with the last one removed."""
    last = planned.cold[-1] if planned.cold else None
    rest = next(chains.chunks(txn, planned.segment.id, Tier.COLD, last.end_offset), None) if last else None
    if last and rest and chain.continues(last, rest):
        changes.cold_linked(txn, planned.segment.id, (rest,), (chains.object_of(txn, rest),))
