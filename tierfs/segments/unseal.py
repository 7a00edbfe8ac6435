"""Unsealing: a sealed segment takes bytes again, under the same name as a new file."""

from __future__ import annotations

from dataclasses import replace

from tierfs import names
from tierfs.errors import Conflict, InvalidRequest
from tierfs.metadata import directories, journal
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import SegmentId, SegmentKind, SegmentStatus


def unseal(metadata: MetadataStore, name: str) -> tuple[SegmentRecord, bool]:
    """Open a sealed segment again; an open one is success. Returns it, and whether it was sealed.

    Appends go on at its length in a new chunk; who wrote before the seal is fenced. The name gets a new
    inode, so that a file that was opened sealed never grows. Raises NotFound, IsDirectory, InvalidRequest
    for a ledger, and Conflict naming the successor of a segment that policy sealed.
    """
    with metadata.write() as txn:
        segment = directories.segment_by_name(txn, name)
        if not segment.sealed:
            return segment, False
        if segment.kind is not SegmentKind.BYTES:
            raise InvalidRequest(f"{names.printable(name)} is a ledger, and ledgers stay closed")
        _require_no_successor(txn, segment, name)
        opened = replace(
            directories.renew_inode(txn, segment),
            status=SegmentStatus.OPEN,
            successor_id=0,
            sealed_ms=0,
            writer_epoch=segment.writer_epoch + 1,
            generation=segment.generation + 1,
            changed_ms=txn.now_ms,
        )
        journal.put_segment(txn, opened)
        return opened, True


def _require_no_successor(txn: ReadTransaction, segment: SegmentRecord, name: str) -> None:
    """A stream that goes on elsewhere would fork. A successor that was deleted is none."""
    if segment.status is not SegmentStatus.SEALED_BY_POLICY or not segment.successor_id:
        return
    successor = directories.segment(txn, SegmentId(segment.successor_id))
    if successor is None:
        return
    path = names.printable(directories.path_of(txn, successor.parent_id, successor.name))
    raise Conflict(f"cannot unseal {names.printable(name)}: it goes on in {path}", remedy=f"append to {path}")
