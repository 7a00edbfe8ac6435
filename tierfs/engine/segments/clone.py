"""Cloning: a new segment with the first bytes of another one. No byte is copied, only records.

One commit. Chunks of both refer to the same files and objects, which count their references; what reads, offloads,
evicts, consolidates or deletes one segment leaves the other as it is. A file that is still appended to ends first: as
long as it grows, its length and its last checksum are the writer's.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ByteRange, Inode, SegmentId, SegmentKind, Tier
from tierfs.engine.metadata import chain_copies, directories, tables
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import create, seal, streams


@dataclass(frozen=True, slots=True)
class Clone:
    """A segment that was made of another one's bytes."""

    source: str
    target: str
    start: int
    """Of the bytes that both have; each is at the same offset in both."""
    end: int
    chunks: int
    """Of both tiers, that refer to files and objects of the source."""
    successor: str | None = None
    """The segment that the source continues in, if policy sealed it: its bytes are not in the clone."""


def clone(metadata: MetadataStore, source: str, target: str, *, end: int | None = None) -> tuple[Clone, str | None]:
    """Make an open segment of the bytes of `source` below the offset `end`, or of all; with its own name in `target`,
    if that is a directory.

    Offsets stay: a source whose head was cut off gives a segment that starts where it does. A writer of the source
    goes on. Returns the effect, and the chunk file of the source that it ended. Raises NotFound, IsDirectory,
    AlreadyExists, NotDirectory, InvalidRequest: for a ledger, and for an end that is not in the source.
    """
    with metadata.write() as txn:
        segment = directories.segment_by_name(txn, source)
        source = names.join(names.split(source))
        kept = _kept(segment, source, segment.length if end is None else end)
        target = create.name_at(txn, target, segment.name)
        ended = seal.end_chunk(txn, segment) if _is_in_active(segment, kept) else None
        made = _made(txn, target, segment, kept)
        chunks = made.local.count + made.cold.count
        return Clone(source, target, kept.start, kept.end, chunks, _successor(txn, segment)), ended


def _kept(segment: SegmentRecord, name: str, end: int) -> ByteRange:
    """Return the bytes that both have. Raises InvalidRequest."""
    shown = names.printable(name)
    if segment.kind is not SegmentKind.BYTES:
        raise InvalidRequest(f"{shown} is a ledger, and ledgers are not cloned")
    if not segment.start_offset <= end <= segment.length:
        has = f"has bytes {segment.start_offset} to {segment.length}"
        raise InvalidRequest(f"cannot clone {shown} up to {end}: it {has}")
    return ByteRange(segment.start_offset, end)


def _successor(txn: ReadTransaction, segment: SegmentRecord) -> str | None:
    following = streams.successor(txn, segment)
    return None if following is None else directories.path_of(txn, following.parent_id, following.name)


def _is_in_active(segment: SegmentRecord, kept: ByteRange) -> bool:
    """Return whether some of the bytes are in the chunk that is appended to."""
    return segment.active and kept.end > max(kept.start, segment.local.last_chunk)


def _made(txn: WriteTransaction, name: str, source: SegmentRecord, kept: ByteRange) -> SegmentRecord:
    parent_id, last = create.make_parent(txn, name)
    empty = SegmentRecord(
        id=SegmentId(txn.allocate_id()),
        parent_id=parent_id,
        name=last,
        inode=Inode(txn.allocate_id()),
        start_offset=kept.start,
        first_offset=kept.start,
        length=kept.end,
    )
    # First in the journal: a replay takes chunks beyond a segment's length for those of a crashed concat.
    added = create.add(txn, empty)
    local, cold = (chain_copies.copy_chain(txn, source, added, tier, kept) for tier in Tier)
    made = replace(added, local=local, cold=cold)
    txn.put(SEGMENTS, tables.u64(made.id), made)
    txn.touch(segment_id=made.id)
    return made
