"""Which copies of a chunk's bytes are good, by reading all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tierfs import ranges
from tierfs.fsck.findings import Place
from tierfs.fsck.pieces import pieces
from tierfs.fsck.scrub import Scrubber
from tierfs.metadata import directories, keys
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import CHUNKS
from tierfs.types import ByteRange, SegmentId, Tier


@dataclass(slots=True)
class Copies:
    """The readable bytes of one chunk, and where they are good."""

    chunk: ChunkRecord
    readable: ByteRange
    good: dict[Tier, list[ByteRange]] = field(default_factory=lambda: {tier: [] for tier in Tier})
    unknown: bool = False
    """Whether some bytes have no checksums, so that nobody can tell."""
    away: str | None = None
    """Why the whole place of a copy cannot be reached."""

    def bad(self, tier: Tier) -> list[ByteRange]:
        """Bytes of which this tier has no good copy."""
        return list(ranges.gaps(self.readable, self.good[tier]))

    @property
    def lost(self) -> list[ByteRange]:
        """Bytes of which no tier has."""
        return list(ranges.subtract(self.bad(Tier.LOCAL), self.good[Tier.COLD]))


def read_copies(metadata: MetadataStore, scrubber: Scrubber, place: Place) -> Copies | None:
    """Read every copy of a chunk's readable bytes; None when the chunk is gone.

    Raises Unavailable when a tier does not answer, DataLoss when records are too damaged to tell.
    """
    assert place.tier is not None
    segment_id = SegmentId(place.segment_id)
    with metadata.read() as txn:
        chunk = txn.get(CHUNKS, keys.chunk(segment_id, place.tier, place.start_offset))
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
        copies.good[piece.placed.object.tier].extend(ranges.gaps(piece.range, checked.bad))
    copies.good = {tier: ranges.union(found) for tier, found in copies.good.items()}
    return copies
