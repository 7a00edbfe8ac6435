"""Link chunks of many segments to one pack, in the database and the journal, inside one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tierfs.base.bytes.byte_times import ByteTimes, TimedBytes
from tierfs.base.words.types import SegmentId, Tier
from tierfs.engine.metadata import chains, changes, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.packs.format import PackEntry


class PackLinks:
    """The chunks that one transaction links to a pack: at most journal.PACKED_PER_CHANGE, in the order of their bytes.

    Call `end` once.
    """

    def __init__(self, txn: WriteTransaction, pack: ObjectRecord) -> None:
        self._txn = txn
        self._pack = pack
        self._linked: list[tuple[SegmentRecord, ChunkRecord]] = []
        self._written: list[tuple[pb.SegmentRecord, pb.ChunkRecord]] = []
        self._newest: dict[SegmentId, SegmentRecord] = {}
        self._references = 0
        self._written_ms = pack.written_ms
        self._times = list(pack.times.stretches())
        self._timed_bytes = sum(each.length_bytes for each in self._times)

    def newest(self, segment: SegmentRecord) -> SegmentRecord:
        """Return the segment with the links so far; its row is written at the end."""
        return self._newest.get(segment.id, segment)

    def add(self, segment: SegmentRecord, entry: PackEntry, times: Iterable[TimedBytes]) -> None:
        """Link the segment's bytes that a pack entry holds, and that were appended at these times."""
        chunk = self._chunk(entry)
        self._note(entry, times)
        editor = Editor(self._txn, segment)
        self._references += editor.link(Tier.COLD, chunk)
        segment = replace(editor.segment, changed_ms=self._txn.now_ms)
        self._txn.touch(inode=segment.inode, segment_id=segment.id)
        self._newest[segment.id] = segment
        self._linked.append((segment, chunk))

    def append(self, entry: PackEntry) -> None:
        """Link the bytes of an entry, which a segment just grew by. Raises NotFound without the segment."""
        chunk = self._chunk(entry)
        linked = None if entry.segment_id in self._newest else chains.link_last(self._txn, entry.segment_id, chunk)
        if linked is None:
            segment = self._txn.must_get(SEGMENTS, tables.u64(entry.segment_id), "a segment that just grew")
            self.add(self.newest(segment), entry, (self._now(entry),))
        else:
            self._note(entry, (self._now(entry),))
            self._references += 1
            self._written.append(linked)

    def _now(self, entry: PackEntry) -> TimedBytes:
        return TimedBytes(entry.length, self._txn.now_ms, self._txn.now_ms)

    def _note(self, entry: PackEntry, times: Iterable[TimedBytes]) -> None:
        """Note the times of an entry's bytes; those before it that were left out get its first.

        Bytes that a second chunk has, a clone's, are noted once.
        """
        left_out_bytes = entry.object_offset - self._timed_bytes
        if left_out_bytes < 0:
            return
        for each in times:
            self._times.append(replace(each, length_bytes=left_out_bytes + each.length_bytes))
            self._written_ms = max(self._written_ms, each.written_ms)
            left_out_bytes = 0
        self._timed_bytes = entry.object_offset + entry.length

    def _chunk(self, entry: PackEntry) -> ChunkRecord:
        return ChunkRecord(
            start_offset=entry.start_offset,
            length=entry.length,
            object_id=self._pack.id,
            object_offset=entry.object_offset,
            crc32c=entry.crc32c,
            crc_offset=entry.object_offset,
            crc_length=entry.length,
        )

    def end(self) -> None:
        """Write the pack's record, the segments and the journal's change."""
        pack = self._pack
        pack = replace(
            pack,
            references=pack.references + self._references,
            packed=pack.packed + self._references,
            written_ms=self._written_ms,
            times=ByteTimes.of(self._times),
            linked_sequence=self._txn.store.next_outbox,
        )
        self._txn.put(OBJECTS, tables.u64(pack.id), pack)
        changes.link_pack(self._txn, pack, self._linked, self._written)
