"""Describe segments for `info`, `ls` and extended attributes, and sum the bytes below a name in each tier.

Report bytes that are lost, suspect or unreachable before a read fails with EIO. No request is sent to a server.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tierfs.base.bytes.checksum import combine
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Meter, OnProgress, unseen
from tierfs.base.options.precedence import Effective
from tierfs.base.words import names
from tierfs.base.words.types import ByteRange, ChunkState, DirectoryId, EntryKind, LocationId, ReadPriority, Tier
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.records import ChunkRecord, DirectoryRecord, LocationRecord, SegmentRecord
from tierfs.engine.metadata.sums import Sums
from tierfs.engine.metadata.tables import DIRECTORIES, LOCATIONS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import streams

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class SegmentStat:
    """A segment with its full name, effective policy and health."""

    name: str
    record: SegmentRecord
    read_priority: Effective[ReadPriority]
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
    segment = directories.segment_by_name(txn, name)
    crc = segment_crc(txn, segment)
    following = streams.successor(txn, segment)
    return SegmentStat(
        names.join(names.split(name)),
        segment,
        policies.in_force(txn, segment).read_priority(),
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


def listing(txn: ReadTransaction, path: str) -> Iterator[Listed]:
    """Yield the entries of a directory in name order, or the one segment at `path`. Raises NotFound."""
    entry = directories.must_find(txn, path)
    if entry.kind is EntryKind.SEGMENT:
        yield _listed(txn, entry)
        return
    for child in directories.entries(txn, DirectoryId(entry.id)):
        yield _listed(txn, child)


def _listed(txn: ReadTransaction, entry: directories.Entry) -> Listed:
    if entry.kind is EntryKind.DIRECTORY:
        return Listed(entry.name, entry.kind, None, txn.get(DIRECTORIES, tables.u64(entry.id)))
    segment = txn.get(SEGMENTS, tables.u64(entry.id))
    following = streams.successor(txn, segment) if segment is not None else None
    return Listed(entry.name, entry.kind, segment, None, following.name if following is not None else None)


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over one segment, or over all segments below a directory."""

    name: str
    kind: EntryKind
    bytes: int = 0
    """Readable bytes, each counted once however many tiers hold it."""
    local_bytes: int = 0
    cold_bytes: int = 0
    segments: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sums with a child's added."""
        return replace(
            self,
            bytes=self.bytes + other.bytes,
            local_bytes=self.local_bytes + other.local_bytes,
            cold_bytes=self.cold_bytes + other.cold_bytes,
            segments=self.segments + other.segments,
        )


def usage(txn: ReadTransaction, path: str, report: OnProgress = unseen) -> Iterator[Usage]:
    """Yield the sums of every directory below `path`, children before parents and `path` itself last.

    Raises NotFound or NotDirectory.
    """
    entry = directories.must_find(txn, path)
    name = names.join(names.split(path))
    if entry.kind is EntryKind.SEGMENT:
        yield _of_segment(txn, entry, name)
    else:
        yield from _of_directory(txn, entry, name, Meter(report, noun="name"))


def _of_directory(txn: ReadTransaction, entry: Entry, name: str, meter: Meter) -> Iterator[Usage]:
    total = Usage(name, EntryKind.DIRECTORY)
    for child in meter.each(directories.entries(txn, DirectoryId(entry.id)), lambda child: f"{name}/{child.name}"):
        path = f"{name}/{child.name}" if name else child.name
        if child.kind is EntryKind.SEGMENT:
            total = total.plus(_of_segment(txn, child, path))
            continue
        inner = Usage(path, EntryKind.DIRECTORY)
        for inner in _of_directory(txn, child, path, meter):
            yield inner
        total = total.plus(inner)  # the last one is the child's own
    yield total


def _of_segment(txn: ReadTransaction, entry: Entry, name: str) -> Usage:
    record: SegmentRecord = txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(name)}")
    return Usage(name, entry.kind, record.range.length_bytes, record.local.bytes, record.cold.bytes, 1)


FILE_SCHEME = "file:"

# Objects counted for unreachable places: under a second. With more of them, the bytes reported are a lower bound.
_MAX_OBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class UnreachablePlace:
    """A directory of cold bytes that is missing now."""

    url: str
    why: str
    bytes: int
    """Bytes of its objects, as far as they were counted."""


@dataclass(frozen=True, slots=True)
class Endangered:
    """Bytes of a store that cannot be read, or not from every copy."""

    lost_bytes: int
    """Bytes without any copy that passed its checks."""
    suspect_local_bytes: int
    """Bytes of chunks of which a copy failed a check or a read."""
    suspect_cold_bytes: int
    unreachable: tuple[UnreachablePlace, ...] = ()

    @property
    def suspect_bytes(self) -> int:
        """Return the suspect bytes of both tiers."""
        return self.suspect_local_bytes + self.suspect_cold_bytes


def endangered(txn: ReadTransaction, totals: Sums, store: Path) -> Endangered:
    """Return the endangered bytes from the sums; objects are scanned only if a place is unreachable."""
    return Endangered(
        totals.lost_bytes, totals.suspect_local_bytes, totals.suspect_cold_bytes, tuple(_unreachable(txn, store))
    )


def _unreachable(txn: ReadTransaction, store: Path) -> Iterator[UnreachablePlace]:
    places = _away(txn, store)
    if not places:
        return
    from tierfs.engine.metadata.message_rows import messages

    for _, record in islice(messages(txn, OBJECTS), _MAX_OBJECTS):
        if record is not None and record.tier == Tier.COLD and record.location_id in places:
            place = places[record.location_id]
            places[record.location_id] = replace(place, bytes=place.bytes + record.length)
    yield from (place for place in places.values() if place.bytes)


def unreachable_of(txn: ReadTransaction, segment: SegmentRecord, store: Path) -> tuple[UnreachablePlace, ...]:
    """Return the unreachable places that hold bytes of one segment."""
    places = _away(txn, store)
    for chunk in chains.chunks(txn, segment.id, Tier.COLD) if places else ():
        record = txn.get(OBJECTS, tables.u64(chunk.object_id))
        if record is not None and record.location_id in places:
            place = places[record.location_id]
            places[record.location_id] = replace(place, bytes=place.bytes + chunk.length)
    return tuple(place for place in places.values() if place.bytes)


def _away(txn: ReadTransaction, store: Path) -> dict[LocationId, UnreachablePlace]:
    """Return the missing directories only: an unreachable server is reported with the stuck work that met it."""
    return {
        place.id: UnreachablePlace(place.url, why, 0)
        for _, place in txn.scan(LOCATIONS)
        if (why := _why_away(place, store)) is not None
    }


def _why_away(place: LocationRecord, store: Path) -> str | None:
    if not place.url.startswith(FILE_SCHEME):
        return None
    try:
        with os.scandir(store / names.to_os(place.url.removeprefix(FILE_SCHEME))) as entries:
            return None if next(entries, None) is not None else "the directory is empty; is it mounted?"
    except OSError as exc:
        if exc.errno == errno.EACCES:
            return None  # others may read what this user cannot list
        return exc.strerror or str(exc)
