"""Mending copies: a bad one goes where a good one is, what is left of it is saved, the rest is lost.

Order of every mend: read all copies -> write what is saved, synced -> one commit that finds the chunk
unchanged. The bad file or object becomes garbage by that commit, never before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from tierfs.background.marks import mark
from tierfs.chunkstore.chunkfiles import ChunkFiles, file_name, map_os_errors
from tierfs.fsck.copies import Copies, read_copies
from tierfs.fsck.findings import Place
from tierfs.fsck.mend_rows import put_segment
from tierfs.fsck.pieces import pieces
from tierfs.fsck.ranges import minus, union
from tierfs.fsck.scrub import Scrubber
from tierfs.metadata import chain_cuts, chains, checksums, directories, keys
from tierfs.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore, new_id
from tierfs.metadata.tables import CHUNKS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.segments.active_chunk import ActiveChunk, write_all
from tierfs.types import AttemptId, ByteRange, ChunkState, ObjectId, SegmentId, Tier

CHANGED = "it changed meanwhile; run it again"


@dataclass(frozen=True, slots=True)
class _Saved:
    """A chunk file written from the good bytes of a bad one."""

    file: ActiveChunk
    crcs: tuple[int, ...]


class CopyMender:
    """Mends chunks of which a copy is bad."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, scrubber: Scrubber, grace_ms: int) -> None:
        """`grace_ms`: how long objects that are given up stay, for readers that have them open."""
        self._metadata = metadata
        self._files = files
        self._scrubber = scrubber
        self._grace_ms = grace_ms

    def mend(self, place: Place) -> str | None:
        """Mend one chunk; why not, otherwise. What looked bad and is good loses its mark."""
        copies = read_copies(self._metadata, self._scrubber, place)
        if copies is None:
            return None  # another finding's mend, or an eviction, took it away
        if copies.unknown:
            return "some of its bytes have no checksums, so nobody can tell which copy is good"
        assert place.tier is not None
        if not copies.bad(place.tier):
            mark(self._metadata, SegmentId(place.segment_id), place.tier, copies.chunk, ChunkState.GOOD)
            return None
        return self._mend_local(place, copies) if place.tier is Tier.LOCAL else self._mend_cold(place, copies)

    def lose(self, segment_id: SegmentId, span: ByteRange) -> str | None:
        """Make a range that no chunk has a lost extent."""
        with self._metadata.write() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                return CHANGED
            self._lose(txn, segment, [span])
        return None

    def _mend_local(self, place: Place, copies: Copies) -> str | None:
        """Unlink the chunk where all of it is good and cold; else save what only it has."""
        only_here = list(minus(copies.good[Tier.LOCAL], copies.good[Tier.COLD]))
        saved = [self._save(SegmentId(place.segment_id), span) for span in only_here]
        with self._metadata.write() as txn:
            segment = self._unchanged(txn, place, copies)
            if segment is None:
                return CHANGED
            if segment.active and segment.local.last_chunk == place.start_offset:
                segment = replace(segment, active=False, resumable=False)
            segment = chains.remove(txn, segment, Tier.LOCAL, [copies.chunk], due_ms=txn.now_ms, after_sequence=0)
            for one in saved:
                segment = _link(txn, segment, one)
            self._lose(txn, segment, copies.lost)
        return None

    def _mend_cold(self, place: Place, copies: Copies) -> str | None:
        """Take out what is good and local, so that it is offloaded again, and what is lost.

        Offload moves whole local chunks, so the bytes of whole ones are taken out. Where such a chunk reaches
        beyond this one, the bad bytes stay in it, and the mark keeps the good ones from being evicted.
        """
        again = [copies.chunk.range] if not copies.bad(Tier.LOCAL) else self._whole_local(place, copies)
        if list(minus(copies.bad(Tier.COLD), [*again, *copies.lost])):
            mark(self._metadata, SegmentId(place.segment_id), Tier.COLD, copies.chunk, ChunkState.SUSPECT)
            return "it is suspect: the local copy of the bad bytes is good, and stays"
        with self._metadata.write() as txn:
            segment = self._unchanged(txn, place, copies)
            if segment is None:
                return CHANGED
            for span in again:
                segment = chain_cuts.take_out(txn, segment, span, due_ms=txn.now_ms + self._grace_ms)
            self._lose(txn, segment, copies.lost)
        return None

    def _whole_local(self, place: Place, copies: Copies) -> list[ByteRange]:
        """The local chunks that hold good copies of the bad bytes and lie inside the cold one."""
        wanted = minus(copies.bad(Tier.COLD), copies.lost)
        with self._metadata.read() as txn:
            found = {
                chunk.range
                for span in wanted
                for chunk in chains.chunks(txn, SegmentId(place.segment_id), Tier.LOCAL, span.start)
                if chunk.start_offset < span.end
            }
        return [
            one
            for one in union(found)
            if copies.readable.contains(one) and not list(minus([one], copies.good[Tier.LOCAL]))
        ]

    def _lose(self, txn: WriteTransaction, segment: SegmentRecord, spans: list[ByteRange]) -> None:
        for span in spans:
            segment = chain_cuts.lose(txn, segment, span, due_ms=txn.now_ms + self._grace_ms)
        put_segment(txn, segment, journaled=True)

    def _unchanged(self, txn: WriteTransaction, place: Place, copies: Copies) -> SegmentRecord | None:
        assert place.tier is not None
        current = txn.get(CHUNKS, keys.chunk(place.segment_id, place.tier, place.start_offset))
        segment = directories.segment(txn, SegmentId(place.segment_id))
        known: ChunkRecord = copies.chunk
        same = current is not None and (current.object_id, current.length) == (known.object_id, known.length)
        return segment if same else None

    def _save(self, segment_id: SegmentId, span: ByteRange) -> _Saved:
        """A new chunk file of these bytes, durable and read-only. Without its record it is an orphan."""
        attempt = AttemptId(new_id())
        file = ActiveChunk(file_name(segment_id, span.start, attempt), attempt, span.start)
        crcs: list[int] = []
        fd = self._files.create_file(file.name)
        try:
            for piece in pieces(self._metadata, segment_id, span, (Tier.LOCAL,)):
                data, at = self._scrubber.read(piece), file.length
                write_all(fd, data, at)
                found = file.checksum(data)
                crcs[found.first_block :] = found.crcs
            with map_os_errors(file.name):
                os.fdatasync(fd)
        finally:
            os.close(fd)
        self._files.sync_directory(file.name)
        self._files.seal(file.name)
        return _Saved(file, tuple(crcs))


def _link(txn: WriteTransaction, segment: SegmentRecord, saved: _Saved) -> SegmentRecord:
    file = saved.file
    holder = ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=Tier.LOCAL,
        name=file.name,
        length=file.length,
        crc32c=file.whole_crc,
        attempt=file.attempt,
        created_ms=txn.now_ms,
    )
    for run in checksums.runs_of(holder.id, saved.crcs):
        checksums.put_run(txn, holder.id, replace(run, object_id=0))
    chunk = ChunkRecord(start_offset=file.start_offset, length=file.length, object_id=holder.id)
    return chains.insert(txn, segment, Tier.LOCAL, chunk, holder)
