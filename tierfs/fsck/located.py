"""From objects back to the segments whose bytes they hold. No index leads there: one pass over the chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tierfs import ranges
from tierfs.errors import DataLoss
from tierfs.fsck.chains import segment_name
from tierfs.fsck.findings import Place
from tierfs.metadata import chains, keys
from tierfs.metadata.messages import message, messages
from tierfs.metadata.records import ChunkRecord, ObjectRecord
from tierfs.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ByteRange, ChunkState, SegmentId, Tier


@dataclass(frozen=True, slots=True)
class Located:
    """A chunk of one of the objects asked for."""

    segment: str
    """The segment's name, printable."""
    place: Place
    chunk: ChunkRecord
    object: ObjectRecord

    @property
    def range(self) -> ByteRange:
        """The segment's bytes."""
        return self.chunk.range

    def behind(self, object_offset: int) -> ByteRange:
        """The chunk's bytes from an offset of its object on."""
        start = self.chunk.start_offset + max(0, object_offset - self.chunk.object_offset)
        return ByteRange(min(start, self.chunk.end_offset), self.chunk.end_offset)

    def has_other_copy(self, txn: ReadTransaction) -> bool:
        """Whether good chunks of the other tier hold all of its bytes, by their records."""
        return self.place.tier is not None and copied(txn, self.place.segment_id, self.place.tier, self.range)


def copied(txn: ReadTransaction, segment_id: int, tier: Tier, span: ByteRange) -> bool:
    """Whether good chunks of the tier that is not `tier` hold all of `span`, by their records."""
    other = Tier.COLD if tier is Tier.LOCAL else Tier.LOCAL
    good = (
        chunk.range
        for chunk in chains.overlapping(txn, SegmentId(segment_id), other, span)
        if chunk.state is ChunkState.GOOD and txn.get(OBJECTS, keys.u64(chunk.object_id)) is not None
    )
    try:
        return ranges.covers(good, span)
    except DataLoss:
        return False


def locate(txn: ReadTransaction, tier: Tier, object_ids: Collection[int]) -> Iterator[Located]:
    """The chunks of these objects that are there now."""
    for key, chunk in messages(txn, CHUNKS):
        if chunk is None or chunk.object_id not in object_ids or key[keys.U64_BYTES] != tier:
            continue
        segment_id = keys.read_u64(key)
        record, holder = message(txn, SEGMENTS, keys.u64(segment_id)), txn.get(OBJECTS, keys.u64(chunk.object_id))
        if record is not None and holder is not None:
            found = CHUNKS.codec.from_message(chunk)
            yield Located(segment_name(txn, record), Place(segment_id, tier, found.start_offset), found, holder)
