"""Sealing a segment, and rolling its active chunk."""

from __future__ import annotations

from dataclasses import replace

from tierfs.metadata import chains, directories, keys
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.segments import ownership, seal_record, streams
from tierfs.segments.writer_locks import WriterLocks
from tierfs.types import SegmentId, SegmentStatus, Tier


def seal(metadata: MetadataStore, writer_locks: WriterLocks, name: str) -> tuple[SegmentRecord, str | None]:
    """End a segment for good; a sealed one is success. Returns it and the chunk file that ended.

    Of a stream, the member that is appended to is sealed, whichever of them `name` names. Raises NotFound, or
    Conflict naming a live writer. Earlier writers are fenced.
    """
    with metadata.write() as txn:
        segment = streams.newest(txn, directories.segment_by_name(txn, name))
        if segment.status is SegmentStatus.SEALED:
            return segment, None
        fenced = ownership.fence(txn, segment, writer_locks)
        return seal_record.write(txn, fenced), active_file(txn, segment)


def roll(metadata: MetadataStore, segment_id: SegmentId) -> str | None:
    """End the active chunk at the committed length; returns its file, or None when there was none.

    A live writer goes on: its next commit finds the chunk ended and its bytes are written again to a
    new one. Idempotent.
    """
    with metadata.write() as txn:
        segment = directories.segment(txn, segment_id)
        if segment is None or not segment.active:
            return None
        ended = active_file(txn, segment)
        rolled = replace(segment, active=False, resumable=False, generation=segment.generation + 1)
        txn.put(SEGMENTS, keys.u64(segment.id), rolled)
        return ended


def active_file(txn: ReadTransaction, segment: SegmentRecord) -> str | None:
    """The chunk file that the segment is being appended to, if there is one."""
    last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.length) if segment.active else None
    return chains.object_of(txn, last).name if last is not None else None
