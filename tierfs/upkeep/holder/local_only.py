"""Bytes that are on this disk alone: local ones of which the bucket's journal names no good copy.

A fenced store lists them, so that nothing acknowledged is lost unseen (design §6).
"""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.types import ByteRange, ChunkState, Tier
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction


@dataclass(frozen=True, slots=True)
class LocalOnly:
    """A run of a segment's bytes that is on this disk alone."""

    segment: str
    start: int
    end: int


def local_only(txn: ReadTransaction) -> Iterator[LocalOnly]:
    """Yield every such run of every segment that was not removed, by segment and offset, from cursors."""
    for _, segment in txn.scan(SEGMENTS):
        if segment.local.count:
            name = directories.path_of(txn, segment.parent_id, segment.name)
            if names.is_removed(name):
                continue  # a person removed it, and a fenced store restores nothing
            for run in ranges.subtract(_local(txn, segment), _named_cold(txn, segment)):
                yield LocalOnly(name, run.start, run.end)


def _local(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ByteRange]:
    """Yield the local ranges of a segment, cut to it: a chunk may begin before its segment, whose head was cut."""
    chunks = chains.chunks(txn, segment.id, Tier.LOCAL, segment.start_offset)
    return ranges.intersect((chunk.range for chunk in chunks if not chunk.lost), (segment.range,))


def _named_cold(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ByteRange]:
    published = txn.store.journal.published_sequence
    for chunk in chains.chunks(txn, segment.id, Tier.COLD, segment.local.first_chunk):
        if chunk.state is ChunkState.GOOD and chains.object_of(txn, chunk).linked_sequence <= published:
            yield chunk.range
