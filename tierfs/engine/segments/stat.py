"""Describe segments for `info`, `ls` and extended attributes. No request is sent to a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tierfs.base.bytes.checksum import combine
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.precedence import Effective
from tierfs.base.words import names
from tierfs.base.words.types import ByteRange, ChunkState, Compression, DirectoryId, EntryKind, ReadPriority, Tier
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import ChunkRecord, DirectoryRecord, SegmentRecord
from tierfs.engine.metadata.tables import DIRECTORIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import streams

if TYPE_CHECKING:
    from tierfs.base.words.stored_size import StoredSize
    from tierfs.engine.segments.archived import InClass

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class SegmentStat:
    """A segment with its full name, effective policy and health."""

    name: str
    record: SegmentRecord
    read_priority: Effective[ReadPriority]
    compression: Effective[Compression]
    """Of its next cold objects."""
    compression_level: int
    cold: StoredSize | None
    """The bytes of its cold chunks, and its share of what is stored; None: nobody looked."""
    archived: tuple[InClass, ...]
    """The cold bytes in other storage classes, by class."""
    crc32c: int | None
    """CRC32C of all readable bytes, combined from the records; None when a part is unknown."""
    successor: str | None
    """Full name of the segment it continues in, if policy sealed it."""
    lost: tuple[ByteRange, ...] = ()
    """Bytes without any copy that passed its checks; reading them fails."""
    suspect: tuple[tuple[Tier, ByteRange], ...] = ()
    """Chunks with a missing or damaged copy; the bytes may be good in the other tier."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a listing."""

    name: str
    kind: EntryKind
    segment: SegmentRecord | None
    directory: DirectoryRecord | None
    successor: str | None = None
    """Name, in the same directory, of the segment it continues in."""


def modified_ns(segment: SegmentRecord | pb.SegmentRecord) -> int:
    """Return a segment's modification time: that of the file it is a copy of, or of a later append."""
    is_copy = segment.file.mode != 0 and segment.file.length == segment.length
    return segment.file.modified_ns if is_copy else segment.modified_ms * _NS_PER_MS


def stat(txn: ReadTransaction, name: str) -> SegmentStat:
    """Describe one segment. Raises NotFound or IsDirectory."""
    from tierfs.engine.metadata.stored_shares import StoredShares  # a listing needs none
    from tierfs.engine.segments.archived import ArchivedShares

    segment = directories.segment_by_name(txn, name)
    crc = segment_crc(txn, segment)
    following = streams.successor(txn, segment)
    held = policies.in_force(txn, segment)
    return SegmentStat(
        names.join(names.split(name)),
        segment,
        held.read_priority(),
        held.compression(),
        held.values.compression_level,
        StoredShares(txn).of(segment),
        ArchivedShares(txn).of(segment),
        crc,
        directories.path_of(txn, following.parent_id, following.name) if following is not None else None,
        lost_ranges(txn, segment) if crc is None else (),
        suspect_ranges(txn, segment),
    )


def lost_ranges(txn: ReadTransaction, segment: SegmentRecord) -> tuple[ByteRange, ...]:
    """Return the ranges of a segment that are lost for good, in offset order. Walks the cold chain."""
    gone = (chunk for chunk in chains.chunks(txn, segment.id, Tier.COLD) if chunk.lost)
    readable = (chunk.range.intersect(segment.range) for chunk in gone)
    return tuple(lost for lost in readable if lost)


def suspect_ranges(txn: ReadTransaction, segment: SegmentRecord) -> tuple[tuple[Tier, ByteRange], ...]:
    """Return the suspect ranges of each tier; walks the chains only if the store has suspect chunks."""
    sums = txn.sums
    if sums is not None and not (sums.suspect_local_bytes or sums.suspect_cold_bytes):
        return ()
    return tuple(
        (tier, readable)
        for tier in Tier
        for chunk in chains.chunks(txn, segment.id, tier)
        if chunk.state is ChunkState.SUSPECT and (readable := chunk.range.intersect(segment.range))
    )


def segment_crc(txn: ReadTransaction, segment: SegmentRecord) -> int | None:
    """Return the CRC32C of a segment's bytes, combined from its local chunks, else its cold ones; None if unknown."""
    whole, offset = 0, segment.start_offset
    while offset < segment.length:
        step = next((known for tier in Tier if (known := _known_crc_at(txn, segment, tier, offset))), None)
        if step is None:
            return None
        chunk, crc = step
        # Combining loads awscrt: 55 ms of CPU, a third of `tierfs info` (measured), and most segments have one chunk.
        whole = combine(whole, crc, chunk.length) if offset > segment.start_offset else crc
        offset = chunk.end_offset
    return whole


def _known_crc_at(
    txn: ReadTransaction, segment: SegmentRecord, tier: Tier, offset: int
) -> tuple[ChunkRecord, int] | None:
    """Return the chunk at `offset` with the CRC of its bytes, its own or its whole object's; None if unknown."""
    chunk = chains.chunk_at(txn, segment.id, tier, offset)
    if chunk is None or chunk.lost or chunk.start_offset != offset or chunk.end_offset > segment.length:
        return None
    if chunk.bytes_crc32c is not None:
        return chunk, chunk.bytes_crc32c
    stored = chains.object_of(txn, chunk)
    if stored.crc32c is None or stored.length != chunk.length:
        return None
    return chunk, stored.crc32c


def listing(txn: ReadTransaction, path: str, *, after: str = "") -> Iterator[Listed]:
    """Yield the entries of a directory after a name, in name order, or the one segment at `path`. Raises NotFound."""
    entry = directories.must_find(txn, path)
    if entry.kind is EntryKind.SEGMENT:
        if entry.name > after:
            yield _listed(txn, entry)
        return
    for child in directories.entries(txn, DirectoryId(entry.id), after=after):
        yield _listed(txn, child)


def _listed(txn: ReadTransaction, entry: directories.Entry) -> Listed:
    if entry.kind is EntryKind.DIRECTORY:
        return Listed(entry.name, entry.kind, None, txn.get(DIRECTORIES, tables.u64(entry.id)))
    segment = txn.get(SEGMENTS, tables.u64(entry.id))
    following = streams.successor(txn, segment) if segment is not None else None
    return Listed(entry.name, entry.kind, segment, None, following.name if following is not None else None)
