"""Packs: one object that holds chunks of many segments, with an index that names them (docs/format.md).

Payloads lie back to back from offset 0; after them the index, then a trailer of fixed size. In a compressed pack the
payloads are zstd frames; index and trailer are one frame that zstd skips, in front of the seek table. Offsets count
plain bytes in both forms. Parsed bytes are untrusted: sizes are capped before anything is read, and every range is
checked. The format functions are pure; `read_pack` reads from the cold tier.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from tierfs.base.bytes.checksum import Buffer, crc32c, twice
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import object_names
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import MAX_PACK_ENTRIES, MIB, AttemptId, ByteRange, ObjectId, SegmentId
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.frames import seek_table, skipped
from tierfs.engine.frames.seek_table import Section
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.untrusted import MAX_OFFSET

PACKS_PREFIX = "packs/"

MAGIC = b"TFSP"

# Format version in the trailer of a compressed pack.
COMPRESSED_VERSION = 2

# Of an attempt (metadata.store.new_id); in the name of a pack that was moved the attempt of the move follows it.
_ATTEMPT_DIGITS = 32

# Magic, format version, offset, length and CRC32C of the index, CRC32C of the trailer up to here.
_TRAILER = struct.Struct(">4sIQQII")

_CHECKED = _TRAILER.size - 4

TRAILER_BYTES = _TRAILER.size

# 20,000 entries with names of 800 bytes; more is refused before it is read.
MAX_INDEX_BYTES = 16 * MIB

# Read from the end of a compressed pack at first: the index of some 3,000 entries. Less time than a second request.
TAIL_BYTES = 256 * 1024


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
    """The trailer of a pack: range of its index, where payloads are plain, and its checksum."""

    index: ByteRange
    crc32c: int


@dataclass(frozen=True, slots=True)
class PackName:
    """The fields of a pack's name."""

    object_id: ObjectId
    store_epoch: int
    attempt: AttemptId
    """As in its index."""
    crc32c: int
    """Of the whole object; of the payloads of a compressed one, which is all that zstd makes of it."""
    is_compressed: bool = False


@dataclass(frozen=True, slots=True)
class PackContents:
    """The end of a pack: its index, and the sizes of the frames."""

    index: PackIndex
    payload_bytes: int
    """Plain bytes of the payloads."""
    section: Section | None = None
    """The frames of a compressed pack: those of the payloads, and the one that has the index as the last one."""


def pack_name(
    object_id: ObjectId, store_epoch: int, attempt: AttemptId, crc: int, *, is_compressed: bool = False
) -> str:
    """Return the name of a pack; never used twice. `crc`: see PackName."""
    end = object_names.COMPRESSED if is_compressed else ""
    return f"{PACKS_PREFIX}{object_id:020d}-e{store_epoch}-{attempt}-c{crc:08x}{end}"


def moved_name(name: str, attempt: AttemptId) -> str | None:
    """Return another name for the same pack, made by an attempt; None for other names than those of packs.

    Its index has the first attempt, so the name has both.
    """
    named = parse_name(name)
    if named is None:
        return None
    both = AttemptId(named.attempt + attempt)
    return pack_name(named.object_id, named.store_epoch, both, named.crc32c, is_compressed=named.is_compressed)


def parse_name(name: str) -> PackName | None:
    """Parse the name of a pack; None for other names."""
    match = object_names.PACK.fullmatch(name)
    if match is None:
        return None
    return PackName(
        ObjectId(int(match["object"])),
        int(match["epoch"]),
        AttemptId(match["attempt"][:_ATTEMPT_DIGITS]),
        int(match["crc"], 16),
        match["zstd"] is not None,
    )


def index_and_trailer(index: PackIndex, payload_bytes: int) -> bytes:
    """Return the bytes that follow the payloads of a plain pack."""
    return _index_and_trailer(index, payload_bytes, RECORD_VERSION)


def index_frame(index: PackIndex, payload_bytes: int) -> bytes:
    """Return the frame that follows those of so many plain payload bytes in a compressed pack."""
    return skipped.skipped(_index_and_trailer(index, payload_bytes, COMPRESSED_VERSION))


def _index_and_trailer(index: PackIndex, payload_bytes: int, version: int) -> bytes:
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
    checked = _TRAILER.pack(MAGIC, version, payload_bytes, len(data), crc32c(data), 0)[:_CHECKED]
    return data + checked + crc32c(checked).to_bytes(4, "big")


def parse_trailer(data: Buffer, object_bytes: int, name: str, *, is_compressed: bool = False) -> Trailer:
    """Parse the trailer of a pack, which has so many bytes where its payloads are plain.

    Raises DataLoss, which names the object.
    """
    if len(data) != TRAILER_BYTES:
        raise _damaged(name, "it is too short")
    magic, version, offset, length, crc, own_crc = _TRAILER.unpack(data)
    if magic != MAGIC or own_crc != crc32c(bytes(data[:_CHECKED])):
        raise _damaged(name, "it does not end with the trailer of a pack")
    written = COMPRESSED_VERSION if is_compressed else RECORD_VERSION
    if version > written:
        raise DataLoss(f"{printable(name)} has format version {version}", remedy="upgrade tierfs")
    if is_compressed and version < written:
        raise _damaged(name, f"it is compressed, and has format version {version}")
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


def read_index(storage: ChunkStorage, name: str, length_bytes: int) -> PackIndex:
    """Read the index of a pack of so many stored bytes; see `read_pack`."""
    return read_pack(storage, name, length_bytes).index


def read_pack(storage: ChunkStorage, name: str, length_bytes: int) -> PackContents:
    """Read the end of a pack of so many stored bytes: a plain one in two small reads, else mostly in one.

    Raises DataLoss when it is damaged or contradicts its name, twice, and storage errors.
    """
    return twice(lambda: _read_pack(storage, name, length_bytes))


def _read_pack(storage: ChunkStorage, name: str, length_bytes: int) -> PackContents:
    named = parse_name(name)
    if named is None:
        raise DataLoss(f"{printable(name)} does not have the name of a pack")
    if length_bytes < TRAILER_BYTES:
        raise DataLoss(f"pack {printable(name)} is damaged: it has {length_bytes} bytes")
    read = _read_compressed if named.is_compressed else _read_plain
    contents = read(storage, name, length_bytes)
    if (contents.index.store_epoch, contents.index.attempt) != (named.store_epoch, named.attempt):
        raise DataLoss(f"pack {printable(name)} is damaged: its index contradicts its name")
    return contents


def _read_plain(storage: ChunkStorage, name: str, length_bytes: int) -> PackContents:
    tail = _read(storage, name, ByteRange(length_bytes - TRAILER_BYTES, length_bytes))
    trailer = parse_trailer(tail, length_bytes, name)
    return PackContents(parse_index(_read(storage, name, trailer.index), trailer, name), trailer.index.start)


def _read_compressed(storage: ChunkStorage, name: str, length_bytes: int) -> PackContents:
    tail_start = max(0, length_bytes - TAIL_BYTES)
    tail = _read(storage, name, ByteRange(tail_start, length_bytes))

    def read(start: int, end: int) -> memoryview:
        held = ByteRange(start, end)
        return held.of(tail, tail_start) if start >= tail_start else _read(storage, name, held)

    try:
        section = seek_table.read_section(read, length_bytes, TAIL_BYTES)
        held = _index_range(section)
        payload_bytes, data = section.plain_bytes, skipped.content_of(read(held.start, held.end))
    except DataLoss as exc:
        raise _damaged(name, str(exc)) from exc
    trailer = parse_trailer(data[-TRAILER_BYTES:], payload_bytes + len(data), name, is_compressed=True)
    index = parse_index(data[:-TRAILER_BYTES], trailer, name)
    return PackContents(index, payload_bytes, section)


def _index_range(section: Section) -> ByteRange:
    """Return the place of the frame that has the index: the last one of a compressed pack. Raises DataLoss."""
    sizes = section.sizes
    if section.start_offset or not sizes:
        raise DataLoss("its seek table does not name all its bytes")
    if 0 in sizes[1:-2:2] or sizes[-1]:
        raise DataLoss("its index is no frame that zstd skips")
    if sizes[-2] > skipped.HEADER_BYTES + MAX_INDEX_BYTES + TRAILER_BYTES:
        raise DataLoss(f"its index has {sizes[-2]} bytes")
    return ByteRange(section.table_offset - sizes[-2], section.table_offset)


def _read(storage: ChunkStorage, name: str, held: ByteRange) -> memoryview:
    data = memoryview(bytearray(held.length_bytes))
    if data:
        storage.read_into(name, held.start, data)
    return data
