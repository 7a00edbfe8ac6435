"""Mends copies: reads every copy of a chunk's bytes, keeps the good ones and records the rest as lost.

Bad bytes that the other tier has are dropped; bytes that no tier has are lost until they return. Nothing is
destroyed: a lost extent keeps the file or object it was lost from, which stays in place, and only a copy whose bytes
were just read and proved right in the other tier lets go of one (invariant 13). Order of every mend: read all copies,
then one commit that finds the chunk unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import NotFound
from tierfs.base.words.types import ByteRange, ChunkState, ObjectId, PayloadEncoding, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import chain_edits, chains, directories, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.upkeep.check.findings import FindingPlace
from tierfs.upkeep.check.repair.checksums import mend_checksums
from tierfs.upkeep.check.repair.rows import CHANGED
from tierfs.upkeep.check.scrub.pieces import pieces
from tierfs.upkeep.check.scrub.scrub import Scrubber

# Whether so many bytes of the segment of this name, of which no copy proves right, may be recorded as lost.
MayLose = Callable[[str, int], bool]


@dataclass(slots=True)
class Copies:
    """The readable bytes of one chunk, and the ranges that are good in each tier."""

    chunk: ChunkRecord
    readable: ByteRange
    good: dict[Tier, list[ByteRange]] = field(default_factory=lambda: {tier: [] for tier in Tier})
    unknown: bool = False
    """Whether some bytes have no checksums, so that it cannot be decided which copy is good."""
    away: str | None = None
    """The reason the whole place of a copy cannot be reached."""
    doubtful: set[ObjectId] = field(default_factory=set)
    """Compressed objects with bad bytes: their rows may place frames where there are others."""

    def bad(self, tier: Tier) -> list[ByteRange]:
        """Return the bytes of which this tier has no good copy."""
        return list(ranges.gaps(self.readable, self.good[tier]))

    @property
    def lost(self) -> list[ByteRange]:
        """Bytes of which no tier has a good copy."""
        return list(ranges.subtract(self.bad(Tier.LOCAL), self.good[Tier.COLD]))


def read_copies(metadata: MetadataStore, scrubber: Scrubber, place: FindingPlace) -> Copies | None:
    """Read every copy of a chunk's readable bytes; return None if the chunk is gone.

    Raises Unavailable when a tier does not answer, DataLoss when records are too damaged to decide.
    """
    assert place.tier is not None
    segment_id = SegmentId(place.segment_id)
    with metadata.read() as txn:
        chunk = txn.get(CHUNKS, tables.chunk(segment_id, place.tier, place.start_offset))
        segment = directories.segment(txn, segment_id)
    if chunk is None or segment is None:
        return None
    copies = Copies(chunk, chunk.range.intersect(segment.range))
    for checked in scrubber.run(pieces(metadata, segment_id, copies.readable)):
        piece = checked.piece
        if piece.placed is None:
            continue
        copies.unknown = copies.unknown or piece.grid is None
        copies.away = checked.why if checked.away else copies.away
        if checked.bad and piece.placed.object.encoding is PayloadEncoding.ZSTD_FRAMES:
            copies.doubtful.add(piece.placed.object.id)
        copies.good[piece.placed.object.tier].extend(ranges.gaps(piece.range, checked.bad))
    copies.good = {tier: ranges.union(good) for tier, good in copies.good.items()}
    return copies


@dataclass(frozen=True, slots=True)
class Mended:
    """Result of a mend."""

    left: str | None = None
    """The reason nothing, or not everything, was mended."""
    lost_bytes: int = 0
    """Bytes that the mend recorded as lost."""


class CopyMender:
    """Mends chunks with a bad copy."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, scrubber: Scrubber, grace_ms: int, may_lose: MayLose
    ) -> None:
        """`grace_ms`: time that dropped objects are kept for readers that have them open."""
        self._metadata = metadata
        self._files = files
        self._scrubber = scrubber
        self._grace_ms = grace_ms
        self._may_lose = may_lose

    def mend(self, place: FindingPlace, name: str) -> Mended:
        """Mend one chunk of the segment `name`; one marked suspect or lost that proves good loses its mark."""
        assert place.tier is not None
        copies = self._read(place)
        if copies is None:
            return Mended()  # another finding's mend, or an eviction, removed it
        if copies.unknown:
            return Mended("some of its bytes have no checksums, so the valid copy cannot be determined")
        if not copies.bad(place.tier):
            return Mended(self._clear(place, copies))
        if copies.away is not None:
            return Mended(copies.away)
        if copies.chunk.lost:
            return Mended(self._restore_part(place, copies))
        return self._replace(place, name, copies)

    def _read(self, place: FindingPlace) -> Copies | None:
        """Return what `read_copies` returns; again, once the rows of whole objects are written anew."""
        copies = read_copies(self._metadata, self._scrubber, place)
        is_read_again = False
        for object_id in copies.doubtful if copies is not None else ():
            with suppress(NotFound):
                is_read_again |= mend_checksums(self._metadata, self._scrubber, object_id) is None
        return read_copies(self._metadata, self._scrubber, place) if is_read_again else copies

    def lose(self, segment_id: SegmentId, name: str, lost: ByteRange) -> Mended:
        """Make a range that no chunk holds a lost extent."""
        if not self._may_lose(name, lost.length_bytes):
            return self._declined(lost.length_bytes)
        with self._metadata.write() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                return Mended(CHANGED)
            Editor(txn, segment).lose(lost).put(journaled=True)
        return Mended(lost_bytes=lost.length_bytes)

    def _clear(self, place: FindingPlace, copies: Copies) -> str | None:
        """Clear the mark of a copy whose every byte proved right, if it has one."""
        assert place.tier is not None
        if copies.chunk.state is ChunkState.GOOD:
            return None
        marked = chain_edits.set_state(
            self._metadata, SegmentId(place.segment_id), place.tier, copies.chunk, ChunkState.GOOD
        )
        return None if marked else CHANGED

    def _restore_part(self, place: FindingPlace, copies: Copies) -> str:
        """Take back the bytes of a lost chunk that proved right."""
        assert place.tier is not None
        lost = copies.bad(place.tier)
        still_lost = f"{sum(part.length_bytes for part in lost)} bytes of it are still lost"
        back = list(ranges.gaps(copies.readable, lost))
        if not back:
            return still_lost
        with self._metadata.write() as txn:
            segment = _unchanged(txn, place, copies)
            if segment is None:
                return CHANGED
            rest = ranges.gaps(copies.chunk.range, back)
            parts = [(part, ChunkState.LOST) for part in rest] + [(part, ChunkState.GOOD) for part in back]
            editor = Editor(txn, segment).cut(place.tier, copies.chunk, parts)
            for part in back if place.tier is Tier.LOCAL else []:
                editor.take_out_lost(part, due_ms=txn.now_ms + self._grace_ms)
            editor.put(journaled=True)
        return still_lost

    def _replace(self, place: FindingPlace, name: str, copies: Copies) -> Mended:
        """Drop the bytes that the other tier has, keep the good ones, record the rest as lost."""
        tier, new_bytes = place.tier, sum(part.length_bytes for part in copies.lost)
        assert tier is not None
        dropped = self._dropped(place, copies)
        if any(ranges.subtract(copies.bad(tier), ranges.union([*dropped, *copies.lost]))):
            chain_edits.set_state(self._metadata, SegmentId(place.segment_id), tier, copies.chunk, ChunkState.SUSPECT)
            return Mended("it is suspect: the local copy of the bad bytes is valid, and is kept")
        if new_bytes and not self._may_lose(name, new_bytes):
            return self._declined(new_bytes)
        with self._metadata.write() as txn:
            segment = _unchanged(txn, place, copies)
            if segment is None:
                return Mended(CHANGED)
            self._commit(txn, segment, place, copies, dropped)
        if tier is Tier.LOCAL:
            self._seal(copies)
        return Mended(lost_bytes=new_bytes)

    def _commit(
        self,
        txn: WriteTransaction,
        segment: SegmentRecord,
        place: FindingPlace,
        copies: Copies,
        dropped: list[ByteRange],
    ) -> None:
        local = place.tier is Tier.LOCAL
        if local and segment.active and segment.local.last_chunk == place.start_offset:
            segment = replace(segment, active=False, resumable=False)
        kept = ranges.gaps(copies.chunk.range, ranges.union([*dropped, *copies.lost]))
        parts = [(part, ChunkState.GOOD) for part in kept] + [(part, ChunkState.LOST) for part in copies.lost]
        due_ms = txn.now_ms + (0 if local else self._grace_ms)
        tier = Tier.LOCAL if local else Tier.COLD
        editor = Editor(txn, segment).cut(tier, copies.chunk, parts, due_ms=due_ms)
        for part in copies.lost:
            editor.lose(part)
        editor.put(journaled=True)

    def _dropped(self, place: FindingPlace, copies: Copies) -> list[ByteRange]:
        """Return the bytes of a chunk that its tier drops because the other tier has them good.

        Offload moves whole local chunks, so a cold chunk gives up the bytes of whole local ones. If such a local chunk
        extends past this one, the bad bytes stay in it, and the mark keeps the good ones from being evicted.
        """
        if place.tier is Tier.LOCAL:
            if ranges.covers(copies.good[Tier.COLD], copies.readable):
                return [copies.chunk.range]
            return list(ranges.subtract(copies.bad(Tier.LOCAL), copies.lost))
        return [copies.chunk.range] if not copies.bad(Tier.LOCAL) else self._whole_local(place, copies)

    def _whole_local(self, place: FindingPlace, copies: Copies) -> list[ByteRange]:
        """Return the local chunks that hold good copies of the bad bytes and lie inside the cold one."""
        wanted = ranges.subtract(copies.bad(Tier.COLD), copies.lost)
        with self._metadata.read() as txn:
            local = {
                chunk.range
                for part in wanted
                for chunk in chains.overlapping(txn, SegmentId(place.segment_id), Tier.LOCAL, part)
            }
        return [
            part
            for part in ranges.union(local)
            if copies.readable.contains(part) and ranges.covers(copies.good[Tier.LOCAL], part)
        ]

    def _seal(self, copies: Copies) -> None:
        """Make the file of a former active chunk read-only; a missing file has no mode."""
        with self._metadata.read() as txn:
            record = txn.get(OBJECTS, tables.u64(copies.chunk.object_id))
        if record is not None:
            with suppress(NotFound):
                self._files.seal(record.name)

    def _declined(self, lost_bytes: int) -> Mended:
        return Mended(f"{lost_bytes} bytes would be recorded as lost; --repair does this only with --yes")


def _unchanged(txn: WriteTransaction, place: FindingPlace, copies: Copies) -> SegmentRecord | None:
    assert place.tier is not None
    current = txn.get(CHUNKS, tables.chunk(place.segment_id, place.tier, place.start_offset))
    segment = directories.segment(txn, SegmentId(place.segment_id))
    read: ChunkRecord = copies.chunk
    same = current is not None and (current.object_id, current.length, current.state) == (
        read.object_id,
        read.length,
        read.state,
    )
    return segment if same else None
