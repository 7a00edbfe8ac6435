"""Packs: one object that holds chunks of many segments, with an index that names them (docs/format.md).

Payloads lie back to back from offset 0; after them the index, then a trailer of fixed size. Parsed bytes are
untrusted: sizes are capped before anything is read, and every range is checked. The format functions are pure;
`read_index` reads the trailer and then the index from the cold tier; `PackLinks` links chunks of many segments to one
pack, in the database and the journal, inside one transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from tierfs.base.bytes.byte_times import ByteTimes, TimedBytes
from tierfs.base.bytes.checksum import Buffer, crc32c, twice
from tierfs.base.words import object_names
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import MAX_PACK_ENTRIES, MIB, AttemptId, ByteRange, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import chains, changes, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import RECORD_VERSION, ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.metadata.untrusted import MAX_OFFSET

PACKS_PREFIX = "packs/"

MAGIC = b"TFSP"

# Magic, format version, offset, length and CRC32C of the index, CRC32C of the trailer up to here.
_TRAILER = struct.Struct(">4sIQQII")

_CHECKED = _TRAILER.size - 4

TRAILER_BYTES = _TRAILER.size

# 20,000 entries with names of 800 bytes; more is refused before it is read.
MAX_INDEX_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class PackEntry:
    """Consecutive bytes of one segment, and their place in the pack."""

    segment_id: SegmentId
    path: str
    start_offset: int
    length: int
    object_offset: int
    crc32c: int

    @property
    def range(self) -> ByteRange:
        """The segment's bytes."""
        return ByteRange(self.start_offset, self.start_offset + self.length)


@dataclass(frozen=True, slots=True)
class PackIndex:
    """The index of a pack."""

    store_id: str
    store_epoch: int
    attempt: AttemptId
    created_ms: int
    entries: tuple[PackEntry, ...]
    appended: bool = False
    """Whether it was made of appends that waited for it: then a failure may have kept its bytes from their segments."""


@dataclass(frozen=True, slots=True)
class Trailer:
    """The trailer of a pack: range and checksum of its index."""

    index: ByteRange
    crc32c: int


@dataclass(frozen=True, slots=True)
class PackName:
    """The fields of a pack's name."""

    object_id: ObjectId
    store_epoch: int
    attempt: AttemptId
    crc32c: int


def pack_name(object_id: ObjectId, store_epoch: int, attempt: AttemptId, crc: int) -> str:
    """Return the name of a pack; never used twice. `crc` is the CRC32C of the whole object."""
    return f"{PACKS_PREFIX}{object_id:020d}-e{store_epoch}-{attempt}-c{crc:08x}"


def parse_name(name: str) -> PackName | None:
    """Parse the name of a pack; None for other names."""
    match = object_names.PACK.fullmatch(name)
    if match is None:
        return None
    return PackName(
        ObjectId(int(match["object"])), int(match["epoch"]), AttemptId(match["attempt"]), int(match["crc"], 16)
    )


def index_and_trailer(index: PackIndex, payload_bytes: int) -> bytes:
    """Return the bytes that follow the payloads of a pack."""
    message = pb.PackIndex(
        version=RECORD_VERSION,
        store_id=index.store_id,
        store_epoch=index.store_epoch,
        attempt=index.attempt,
        created_ms=index.created_ms,
        appended=index.appended,
    )
    message.entries.extend(_message(entry) for entry in index.entries)
    data = message.SerializeToString(deterministic=True)
    checked = _TRAILER.pack(MAGIC, RECORD_VERSION, payload_bytes, len(data), crc32c(data), 0)[:_CHECKED]
    return data + checked + crc32c(checked).to_bytes(4, "big")


def parse_trailer(data: Buffer, object_bytes: int, name: str) -> Trailer:
    """Parse the last TRAILER_BYTES of an object. Raises DataLoss, which names the object."""
    if len(data) != TRAILER_BYTES:
        raise _damaged(name, "it is too short")
    magic, version, offset, length, crc, own_crc = _TRAILER.unpack(data)
    if magic != MAGIC or own_crc != crc32c(bytes(data[:_CHECKED])):
        raise _damaged(name, "it does not end with the trailer of a pack")
    if version > RECORD_VERSION:
        raise DataLoss(f"{printable(name)} has format version {version}", remedy="upgrade tierfs")
    if length > MAX_INDEX_BYTES or offset + length + TRAILER_BYTES != object_bytes:
        raise _damaged(name, "its index is at another offset")
    return Trailer(ByteRange(offset, offset + length), crc)


def parse_index(data: Buffer, trailer: Trailer, name: str) -> PackIndex:
    """Parse the bytes of an index. Raises DataLoss, which names the object."""
    if crc32c(data) != trailer.crc32c:
        raise _damaged(name, "the checksum of its index differs")
    try:
        message = pb.PackIndex.FromString(bytes(data))
    except DecodeError as exc:
        raise _damaged(name, "its index cannot be decoded") from exc
    if message.version > RECORD_VERSION:
        raise DataLoss(f"{printable(name)} has format version {message.version}", remedy="upgrade tierfs")
    if len(message.entries) > MAX_PACK_ENTRIES:
        raise _damaged(name, f"it has {len(message.entries)} entries")
    entries = tuple(map(_entry, message.entries))
    _check(entries, trailer.index.start, name)
    attempt = AttemptId(message.attempt)
    return PackIndex(message.store_id, message.store_epoch, attempt, message.created_ms, entries, message.appended)


def _check(entries: Sequence[PackEntry], payload_bytes: int, name: str) -> None:
    """Check that entries follow one another, inside the payload and the limits of a segment. Raises DataLoss."""
    at = 0
    for entry in entries:
        end = entry.object_offset + entry.length
        if not (entry.length > 0 and at <= entry.object_offset and end <= payload_bytes):
            raise _damaged(name, f"an entry is at {entry.object_offset} to {end}")
        if entry.range.end > MAX_OFFSET or not entry.segment_id:
            raise _damaged(name, f"an entry of segment {entry.segment_id} is impossible")
        at = end


def _message(entry: PackEntry) -> pb.PackEntry:
    return pb.PackEntry(
        segment_id=entry.segment_id,
        path=entry.path,
        start_offset=entry.start_offset,
        length=entry.length,
        object_offset=entry.object_offset,
        crc32c=entry.crc32c,
    )


def _entry(message: pb.PackEntry) -> PackEntry:
    return PackEntry(
        SegmentId(message.segment_id),
        message.path,
        message.start_offset,
        message.length,
        message.object_offset,
        message.crc32c,
    )


def _damaged(name: str, why: str) -> DataLoss:
    return DataLoss(f"pack {printable(name)} is damaged: {why}")


class PackLinks:
    """The chunks that one transaction links to a pack: at most journal.PACKED_PER_CHANGE, in the order of their bytes.

    Call `end` once.
    """

    def __init__(self, txn: WriteTransaction, pack: ObjectRecord) -> None:
        self._txn = txn
        self._pack = pack
        self._linked: list[tuple[SegmentRecord, ChunkRecord]] = []
        self._written: list[tuple[pb.SegmentRecord, pb.ChunkRecord]] = []
        self._newest: dict[SegmentId, SegmentRecord] = {}
        self._references = 0
        self._written_ms = pack.written_ms
        self._times = list(pack.times.stretches())
        self._timed_bytes = sum(each.length_bytes for each in self._times)

    def newest(self, segment: SegmentRecord) -> SegmentRecord:
        """Return the segment with the links so far; its row is written at the end."""
        return self._newest.get(segment.id, segment)

    def add(self, segment: SegmentRecord, entry: PackEntry, times: Iterable[TimedBytes]) -> None:
        """Link the segment's bytes that a pack entry holds, and that were appended at these times."""
        chunk = self._chunk(entry)
        self._note(entry, times)
        editor = Editor(self._txn, segment)
        self._references += editor.link(Tier.COLD, chunk)
        segment = replace(editor.segment, changed_ms=self._txn.now_ms)
        self._txn.touch(inode=segment.inode, segment_id=segment.id)
        self._newest[segment.id] = segment
        self._linked.append((segment, chunk))

    def append(self, entry: PackEntry) -> None:
        """Link the bytes of an entry, which a segment just grew by. Raises NotFound without the segment."""
        chunk = self._chunk(entry)
        linked = None if entry.segment_id in self._newest else chains.link_last(self._txn, entry.segment_id, chunk)
        if linked is None:
            segment = self._txn.must_get(SEGMENTS, tables.u64(entry.segment_id), "a segment that just grew")
            self.add(self.newest(segment), entry, (self._now(entry),))
        else:
            self._note(entry, (self._now(entry),))
            self._references += 1
            self._written.append(linked)

    def _now(self, entry: PackEntry) -> TimedBytes:
        return TimedBytes(entry.length, self._txn.now_ms, self._txn.now_ms)

    def _note(self, entry: PackEntry, times: Iterable[TimedBytes]) -> None:
        """Note the times of an entry's bytes; those before it that were left out get its first."""
        left_out_bytes = entry.object_offset - self._timed_bytes
        for each in times:
            self._times.append(replace(each, length_bytes=left_out_bytes + each.length_bytes))
            self._written_ms = max(self._written_ms, each.written_ms)
            left_out_bytes = 0
        self._timed_bytes = entry.object_offset + entry.length

    def _chunk(self, entry: PackEntry) -> ChunkRecord:
        return ChunkRecord(
            start_offset=entry.start_offset,
            length=entry.length,
            object_id=self._pack.id,
            object_offset=entry.object_offset,
            crc32c=entry.crc32c,
            crc_offset=entry.object_offset,
            crc_length=entry.length,
        )

    def end(self) -> None:
        """Write the pack's record, the segments and the journal's change."""
        pack = self._pack
        pack = replace(
            pack,
            references=pack.references + self._references,
            packed=pack.packed + self._references,
            written_ms=self._written_ms,
            times=ByteTimes.of(self._times),
            linked_sequence=self._txn.store.next_outbox,
        )
        self._txn.put(OBJECTS, tables.u64(pack.id), pack)
        changes.link_pack(self._txn, pack, self._linked, self._written)


def read_index(storage: ChunkStorage, name: str, length_bytes: int) -> PackIndex:
    """Read the index of a pack of this length, in two small reads.

    Raises DataLoss when it is damaged or contradicts its name, twice, and storage errors.
    """
    return twice(lambda: _read_index(storage, name, length_bytes))


def _read_index(storage: ChunkStorage, name: str, length_bytes: int) -> PackIndex:
    named = parse_name(name)
    if named is None:
        raise DataLoss(f"{printable(name)} does not have the name of a pack")
    if length_bytes < TRAILER_BYTES:
        raise DataLoss(f"pack {printable(name)} is damaged: it has {length_bytes} bytes")
    tail = memoryview(bytearray(TRAILER_BYTES))
    storage.read_into(name, length_bytes - TRAILER_BYTES, tail)
    trailer = parse_trailer(tail, length_bytes, name)
    data = memoryview(bytearray(trailer.index.length_bytes))
    if data:
        storage.read_into(name, trailer.index.start, data)
    index = parse_index(data, trailer, name)
    if (index.store_epoch, index.attempt) != (named.store_epoch, named.attempt):
        raise DataLoss(f"pack {printable(name)} is damaged: its index contradicts its name")
    return index
