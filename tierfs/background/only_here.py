"""What only this disk holds: local bytes of which the bucket's journal names no good copy.

A fenced store lists them, so that nothing acknowledged is lost unseen (design §6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
            for run in uncovered(_local(txn, segment), _named_cold(txn, segment)):
                yield OnlyHere(name, run.start, run.end)


def uncovered(held: Iterable[ByteRange], cover: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """The bytes of `held` that `cover` leaves out, touching runs joined. Both ascend without overlap."""
    run = ByteRange(0, 0)
    for piece in _pieces(held, cover):
        if run and run.end != piece.start:
            yield run
        run = ByteRange(run.start if run.end == piece.start and run else piece.start, piece.end)
    if run:
        yield run


def _pieces(held: Iterable[ByteRange], cover: Iterable[ByteRange]) -> Iterator[ByteRange]:
    covering = iter(cover)
    hidden = next(covering, None)
    for span in held:
        at = span.start
        while at < span.end:
            while hidden is not None and hidden.end <= at:
                hidden = next(covering, None)
            if hidden is None or hidden.start >= span.end:
                yield ByteRange(at, span.end)
                break
            if hidden.start > at:
                yield ByteRange(at, hidden.start)
            at = hidden.end


def _local(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ByteRange]:
    """A chunk may begin before its segment does, where its head was cut."""
    for chunk in chains.chunks(txn, segment.id, Tier.LOCAL, segment.start_offset):
        if not chunk.lost:
            yield chunk.range.intersect(segment.range)


def _named_cold(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ByteRange]:
    published = txn.store.journal.published_sequence
    for chunk in chains.chunks(txn, segment.id, Tier.COLD, segment.local.first_chunk):
        if chunk.state is ChunkState.GOOD and chains.object_of(txn, chunk).linked_sequence <= published:
            yield chunk.range
