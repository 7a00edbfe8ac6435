"""Linking chunks of many segments to one pack, inside one transaction: in the database and in the journal."""

from __future__ import annotations

from dataclasses import replace

from tierfs.metadata import chains, journal, keys
from tierfs.metadata.pack import PackEntry
from tierfs.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.tables import OBJECTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import SegmentId, Tier


class PackLinks:
    """The chunks that one transaction links to a pack: at most journal.PACKED_PER_CHANGE. End it."""

    def __init__(self, txn: WriteTransaction, holder: ObjectRecord) -> None:
        self._txn = txn
        self._holder = holder
        self._linked: list[tuple[SegmentRecord, ChunkRecord]] = []
        self._newest: dict[SegmentId, SegmentRecord] = {}
        self._references = 0

    def newest(self, segment: SegmentRecord) -> SegmentRecord:
        """The segment with what was linked so far: its row is written at the end."""
        return self._newest.get(segment.id, segment)

    def add(self, segment: SegmentRecord, entry: PackEntry) -> None:
        """Link the bytes that the pack holds of a segment."""
        chunk = ChunkRecord(
            start_offset=entry.start_offset,
            length=entry.length,
            object_id=self._holder.id,
            object_offset=entry.object_offset,
            crc32c=entry.crc32c,
            crc_offset=entry.object_offset,
            crc_length=entry.length,
        )
        segment, references = chains.link(self._txn, segment, Tier.COLD, chunk)
        segment = replace(segment, changed_ms=self._txn.now_ms)
        self._txn.touch(inode=segment.inode, segment_id=segment.id)
        self._references += references
        self._newest[segment.id] = segment
        self._linked.append((segment, chunk))

    def end(self, *, written_ms: int) -> None:
        """Write the pack's record and the segments, and tell the journal. By `written_ms` all had been appended."""
        holder = self._holder
        holder = replace(
            holder,
            references=holder.references + self._references,
            packed=holder.packed + self._references,
            written_ms=written_ms,
            linked_sequence=self._txn.store.next_outbox,
        )
        self._txn.put(OBJECTS, keys.u64(holder.id), holder)
        journal.link_pack(self._txn, holder, self._linked)
