"""Concatenating: a sealed segment's bytes become the end of another one. No byte moves, only records.

One commit. Both chains of the source are appended to the target's, with the ranges they cover and those they lack.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.joins import Join, Joins
from tierfs.base.words import names, units
from tierfs.base.words.errors import Conflict, InvalidRequest, Sealed
from tierfs.base.words.types import ByteRange, SegmentKind, Tier
from tierfs.engine.metadata import chain_edits, changes, directories
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import delete, ownership, seal
from tierfs.engine.segments.writer_locks import WriterLocks


@dataclass(frozen=True, slots=True)
class Concatenation:
    """The effect of a concat, done or planned."""

    target: SegmentRecord
    """Its record before the concat."""
    source: SegmentRecord

    @property
    def range(self) -> ByteRange:
        """Return the range of the source's bytes in the target."""
        return ByteRange(self.target.length, self.target.length + self.source.range.length_bytes)

    @property
    def chunks(self) -> int:
        """Return the number of chunks that change owner."""
        return self.source.local.count + self.source.cold.count


def plan(txn: ReadTransaction, target_name: str, source_name: str) -> Concatenation:
    """Return the effect of concatenating, without doing it.

    Raises NotFound, IsDirectory, InvalidRequest (one segment twice, or a ledger), Sealed for the target and
    Conflict for a source that is not sealed, or a target that grows from a foreign layout.
    """
    target = directories.segment_by_name(txn, target_name)
    source = directories.segment_by_name(txn, source_name)
    if target.id == source.id:
        raise InvalidRequest(f"cannot concatenate {names.printable(target_name)} to itself")
    for name, segment in ((target_name, target), (source_name, source)):
        if segment.kind is not SegmentKind.BYTES:
            raise InvalidRequest(f"{names.printable(name)} is a ledger, and ledgers are not concatenated")
    if target.sealed:
        raise Sealed(f"cannot concatenate to {names.printable(target_name)}: it is sealed", remedy="unseal it first")
    ownership.require_own_growth(txn, target)
    if not source.sealed:
        raise Conflict(
            f"cannot concatenate {names.printable(source_name)}: it is not sealed",
            remedy=f"tierfs seal {names.printable(source_name)}",
        )
    concatenation = Concatenation(target, source)
    if concatenation.range.end > units.MAX_BYTES:
        raise InvalidRequest(f"{names.printable(target_name)} would be longer than {units.MAX_BYTES} bytes")
    return concatenation


def concat(
    metadata: MetadataStore, writer_locks: WriterLocks, target_name: str, source_name: str
) -> tuple[Concatenation, str | None]:
    """Append all of a sealed segment to an open one; the source's name disappears.

    Returns the effect, and the chunk file of the target that it ended. A writer of the target in this process
    continues at the new end. Raises Conflict while another process writes the target, and as `plan`.
    """
    with metadata.write() as txn:
        concatenation = plan(txn, target_name, source_name)
        ownership.require_no_writer_elsewhere(txn, concatenation.target, writer_locks)
        ended = seal.active_file(txn, concatenation.target)
        _apply(
            txn,
            replace(concatenation.target, active=False, resumable=False),
            _cut(txn, concatenation.source),
            concatenation,
            names.join(names.split(source_name)),
        )
        return concatenation, ended


def _cut(txn: WriteTransaction, source: SegmentRecord) -> SegmentRecord:
    """Drop the bytes its first chunks hold before its start: in the target they would become readable again."""
    editor = Editor(txn, source)
    for tier in Tier:
        editor.cut_head(tier)
    return editor.segment


def _apply(
    txn: WriteTransaction,
    target: SegmentRecord,
    source: SegmentRecord,
    concatenation: Concatenation,
    source_name: str,
) -> None:
    joined = concatenation.range
    # Order in the journal: chunks past the target's end, invisible to readers; its new end; removal of the source.
    local, cold = (chain_edits.append_chain(txn, target, source, tier) for tier in Tier)
    grown = replace(
        target,
        length=joined.end,
        joins=_joins(concatenation, source_name),
        local=local,
        cold=cold,
        generation=target.generation + 1,
        modified_ms=txn.now_ms if joined else target.modified_ms,
        changed_ms=txn.now_ms,
    )
    changes.put_segment(txn, grown)
    txn.touch(inode=grown.inode, segment_id=grown.id)
    delete.forget(txn, source)


def _joins(concatenation: Concatenation, source_name: str) -> Joins:
    """Return where the target's bytes come from: the source, and what had been joined to that."""
    target, source, joined = concatenation.target, concatenation.source, concatenation.range
    if not joined:
        return target.joins
    start = source.start_offset
    # Of a join whose head was cut off the rest was read where it was before.
    inner = [join.behind(start).moved(joined.start - start) for join in source.joins if join.end > start]
    birth, unsealed_id, recoveries = source.birth, source.unsealed_id, source.recoveries
    own = Join(joined.start, joined.end, source.id, birth, birth, start, source_name, unsealed_id, recoveries)
    return Joins.of([*target.joins, *inner, own])
