"""Verifying segments: every byte of every copy against its checksum, and the CRC32C of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tierfs import ranges
from tierfs.checksum import combine
from tierfs.fsck.copy_reader import Checked, Fault
from tierfs.fsck.pieces import Piece, pieces
from tierfs.fsck.scrub import Scrubber
from tierfs.metadata import chain_cuts
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.store import MetadataStore
from tierfs.parallel import Meter
from tierfs.reading.etags import ADOPTED_AT_ONCE
from tierfs.types import ByteRange, ChunkState, SegmentId, Tier


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes that one copy does not have, or has wrong."""

    tier: Tier
    range: ByteRange
    why: str
    fault: Fault = Fault.DAMAGED


@dataclass(slots=True)
class Verified:
    """What verifying a segment showed."""

    name: str
    start_offset: int
    length: int
    bytes: int = 0
    """Read, of all copies."""
    crc32c: int | None = 0
    """Of the readable bytes; None where the first copy is damaged or bytes are lost."""
    bad: list[BadRange] = field(default_factory=list)
    lost: list[ByteRange] = field(default_factory=list)
    marked: int = 0
    """Chunks that became suspect, and those that lost that mark or are no longer lost."""

    @property
    def ok(self) -> bool:
        """Whether every copy is good and nothing is lost."""
        return not self.bad and not self.lost


class Verifier:
    """Verifies segments one after the other, reading ahead of each."""

    def __init__(self, metadata: MetadataStore, scrubber: Scrubber, meter: Meter, *, marks: bool) -> None:
        """`marks`: bad chunks become suspect, and suspect ones that are good lose the mark."""
        self._metadata = metadata
        self._scrubber = scrubber
        self._meter = meter
        self._marks = marks

    def run(self, segments: Iterable[tuple[str, SegmentId, ByteRange]]) -> Iterator[Verified]:
        """Each segment, by name, id and readable range. Raises Unavailable when a tier does not answer."""
        for name, segment_id, readable in segments:
            result = Verified(name, readable.start, readable.end)
            judged = _Chunks()
            for checked in self._scrubber.run(pieces(self._metadata, segment_id, readable)):
                self._take(result, checked)
                judged.take(checked)
            if self._marks:
                result.marked = sum(chain_cuts.set_state(self._metadata, segment_id, *one) for one in judged.to_mark())
                self._scrubber.etags.adopt(ADOPTED_AT_ONCE)
            yield result
        if self._marks:
            self._scrubber.etags.adopt()

    def _take(self, result: Verified, checked: Checked) -> None:
        piece = checked.piece
        if piece.placed is None or (piece.placed.chunk.lost and checked.bad):
            if piece.first:  # else another tier has these bytes
                result.lost[:] = ranges.union([*result.lost, *(checked.bad or (piece.range,))])
                result.crc32c = None
            return
        result.bytes += piece.range.length_bytes
        self._meter(piece.range.length_bytes, result.name)
        for bad in checked.bad:
            _join(result.bad, BadRange(piece.placed.object.tier, bad, checked.why, checked.fault))
        if piece.first:
            _combine(result, piece, checked)


def _join(bad: list[BadRange], new: BadRange) -> None:
    """Add a range; one that continues the tier's last one, for the same reason, becomes a part of it."""
    for index in range(len(bad) - 1, max(-1, len(bad) - 1 - len(Tier)), -1):
        last = bad[index]
        if (last.tier, last.range.end, last.why) == (new.tier, new.range.start, new.why):
            bad[index] = replace(last, range=ByteRange(last.range.start, new.range.end))
            return
    bad.append(new)


def _combine(result: Verified, piece: Piece, checked: Checked) -> None:
    if checked.bad or result.crc32c is None:
        result.crc32c = None
        return
    result.crc32c = combine(result.crc32c, checked.crc32c, piece.range.length_bytes)


class _Chunks:
    """Which chunks turned out bad, and which suspect or lost ones good."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Tier, int], tuple[ChunkRecord, bool]] = {}

    def take(self, checked: Checked) -> None:
        """Keep what is bad, and what is suspect or lost and may be good. A place that is away says nothing."""
        placed = checked.piece.placed
        if placed is None or (not checked.bad and placed.chunk.state is ChunkState.GOOD):
            return
        if checked.away and placed.chunk.state is ChunkState.GOOD:
            return
        key = (placed.object.tier, placed.chunk.start_offset)
        good = self._seen.get(key, (placed.chunk, True))[1] and not checked.bad
        self._seen[key] = (placed.chunk, good)

    def to_mark(self) -> Iterator[tuple[Tier, ChunkRecord, ChunkState]]:
        """The states they should have."""
        for (tier, _), (chunk, good) in self._seen.items():
            yield tier, chunk, ChunkState.GOOD if good else ChunkState.SUSPECT
