"""The size of a segment in the cold tier: its share of the stored bytes of the objects that hold its chunks.

A chunk's share of an object is proportional to its plain bytes there, as the object's frames may hold bytes of others:
of a pack, of a clone, or of nobody any more. The shares of chunks that divide an object add up to its stored bytes. A
clone has the share of its original again, as it has its bytes again.
"""

from __future__ import annotations

from tierfs.base.words.stored_size import NOTHING_STORED, StoredSize
from tierfs.base.words.types import ChunkState, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction

# Objects that are remembered for the next chunks, as those of a pack are in order. A guess: 1 MiB.
_MOST_REMEMBERED = 8192


def sizes_of(row: ObjectRecord | pb.ObjectRecord) -> StoredSize:
    """Return the bytes of an object."""
    return StoredSize(row.length, row.stored_length or row.length)


def share(size: StoredSize, start: int, end: int) -> int:
    """Return the stored bytes of the plain bytes [start, end) of an object."""
    if size.stored_bytes == size.plain_bytes or not size.plain_bytes:
        return end - start
    first, last = (size.stored_bytes * min(at, size.plain_bytes) // size.plain_bytes for at in (start, end))
    return last - first


def of_chunk(record: ObjectRecord, chunk: ChunkRecord) -> int:
    """Return a chunk's share of its object's stored bytes; 0 for a lost one."""
    start = chunk.object_offset
    return 0 if chunk.lost else share(sizes_of(record), start, start + chunk.length)


class StoredShares:
    """The cold sizes of segments, as of one snapshot. Damaged records count as plain, and `tierfs check` reports them.

    Costs nothing beyond the segment's record while no cold object is encoded; else a look at each of its cold chunks.
    """

    def __init__(self, txn: ReadTransaction) -> None:
        sums = txn.sums
        self._txn = txn
        self._all_are_plain = sums is not None and not sums.encoded_objects
        self._sizes: dict[int, StoredSize] = {}

    def of(self, segment: SegmentRecord) -> StoredSize:
        """Return the plain bytes of a segment's cold chunks, those that can be read, and what is stored for them."""
        if self._all_are_plain or not segment.cold.count:
            return StoredSize(segment.cold.bytes, segment.cold.bytes)
        return StoredSize(segment.cold.bytes, self._stored_bytes(segment.id))

    def _stored_bytes(self, segment_id: SegmentId) -> int:
        stored_bytes = 0
        parse, prefix = CHUNKS.codec.parse_or_none, tables.chunk_prefix(segment_id, Tier.COLD)
        for chunk in (parse(data) for _, data in self._txn.scan_raw(CHUNKS.name, prefix, prefix=prefix)):
            if chunk is not None and chunk.state != ChunkState.LOST:
                size = self._size(ObjectId(chunk.object_id))
                stored_bytes += share(size, chunk.object_offset, chunk.object_offset + chunk.length)
        return stored_bytes

    def _size(self, object_id: ObjectId) -> StoredSize:
        known = self._sizes.get(object_id)
        if known is None:
            data = self._txn.get_raw(OBJECTS.name, tables.u64(object_id))
            row = None if data is None else OBJECTS.codec.parse_or_none(data)
            known = NOTHING_STORED if row is None else sizes_of(row)
            if len(self._sizes) >= _MOST_REMEMBERED:
                self._sizes.clear()
            self._sizes[object_id] = known
        return known
