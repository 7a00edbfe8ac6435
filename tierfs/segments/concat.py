"""Concatenating: a sealed segment's bytes become the end of another one. No byte moves, only records.

One commit. Both chains of the source come behind the target's, with whatever they cover and leave out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tierfs import names, units
from tierfs.errors import Conflict, InvalidRequest, Sealed
from tierfs.metadata import chain_edits, chains, changes, directories
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments import delete, ownership, seal
from tierfs.segments.ownership import WriterLocks
from tierfs.types import ByteRange, SegmentKind, Tier


@dataclass(frozen=True, slots=True)
class Concatenation:
    """What a concat did, or would do."""

    target: SegmentRecord
    """As it is before."""
    source: SegmentRecord

    @property
    def range(self) -> ByteRange:
        """Where the source's bytes lie in the target."""
        return ByteRange(self.target.length, self.target.length + self.source.range.length_bytes)

    @property
    def chunks(self) -> int:
        """How many chunks change hands."""
        return self.source.local.count + self.source.cold.count


def plan(txn: ReadTransaction, target_name: str, source_name: str) -> Concatenation:
    """What concatenating would do.

    Raises NotFound, IsDirectory, InvalidRequest (one segment twice, or a ledger), Sealed for the target and
    Conflict for a source that is not sealed.
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
    if not source.sealed:
        raise Conflict(
            f"cannot concatenate {names.printable(source_name)}: it is not sealed",
            remedy=f"tierfs seal {names.printable(source_name)}",
        )
    found = Concatenation(target, source)
    if found.range.end > units.MAX_BYTES:
        raise InvalidRequest(f"{names.printable(target_name)} would be longer than {units.MAX_BYTES} bytes")
    return found


def concat(
    metadata: MetadataStore, writer_locks: WriterLocks, target_name: str, source_name: str
) -> tuple[Concatenation, str | None]:
    """Append all of a sealed segment to an open one; the source's name disappears.

    Returns what was done, and the chunk file of the target that ended by it. A writer of the target in this
    process goes on at the new end; while another process writes it: Conflict. Raises what `plan` raises.
    """
    with metadata.write() as txn:
        found = plan(txn, target_name, source_name)
        ownership.require_no_writer_elsewhere(txn, found.target, writer_locks)
        ended = seal.active_file(txn, found.target)
        _apply(txn, replace(found.target, active=False, resumable=False), _cut(txn, found.source), found.range)
        return found, ended


def _cut(txn: WriteTransaction, source: SegmentRecord) -> SegmentRecord:
    """Without what its first chunks hold before its start: as the target's those bytes could be read again."""
    for tier in Tier:
        source = chains.cut_head(txn, source, tier)
    return source


def _apply(txn: WriteTransaction, target: SegmentRecord, source: SegmentRecord, span: ByteRange) -> None:
    # In the journal: chunks behind the target's end, which nobody sees; then its new end; then no source.
    local, cold = (chain_edits.append_chain(txn, target, source, tier) for tier in Tier)
    grown = replace(
        target,
        length=span.end,
        local=local,
        cold=cold,
        generation=target.generation + 1,
        modified_ms=txn.now_ms if span else target.modified_ms,
        changed_ms=txn.now_ms,
    )
    changes.put_segment(txn, grown)
    txn.touch(inode=grown.inode, segment_id=grown.id)
    delete.forget(txn, source)
