"""What only this disk holds: local bytes of which the bucket's journal names no good copy.

A fenced store lists them, so that nothing acknowledged is lost unseen (design §6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tierfs import ranges
from tierfs.metadata import chains, directories
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ByteRange, ChunkState, Tier


@dataclass(frozen=True, slots=True)
class OnlyHere:
    """A run of a segment's bytes that is on this disk alone."""

    segment: str
    start: int
    end: int


def only_here(txn: ReadTransaction) -> Iterator[OnlyHere]:
    """Every such run of every segment, by segment and offset; streams off cursors."""
    for _, segment in txn.scan(SEGMENTS):
        if segment.local.count:
            name = directories.path_of(txn, segment.parent_id, segment.name)
            for run in ranges.subtract(_local(txn, segment), _named_cold(txn, segment)):
                yield OnlyHere(name, run.start, run.end)


def _local(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ByteRange]:
    """A chunk may begin before its segment does, where its head was cut."""
    chunks = chains.chunks(txn, segment.id, Tier.LOCAL, segment.start_offset)
    return ranges.intersect((chunk.range for chunk in chunks if not chunk.lost), (segment.range,))


def _named_cold(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ByteRange]:
    published = txn.store.journal.published_sequence
    for chunk in chains.chunks(txn, segment.id, Tier.COLD, segment.local.first_chunk):
        if chunk.state is ChunkState.GOOD and chains.object_of(txn, chunk).linked_sequence <= published:
            yield chunk.range
