"""Frames of the journal's objects: magic, format version, CRC32C, payload, which is one message.

All input is untrusted until its frame and sizes were checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from tierfs.base.bytes.checksum import crc32c, twice
from tierfs.base.words import units
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import RECORD_VERSION

M = TypeVar("M", bound=Message)

MAGIC = b"TFSJ"
# Magic, format version, CRC32C of the payload, length of the payload.
_HEADER = struct.Struct(">4sIIQ")

# Journal objects are single PUTs and are refused above this size before they are read.
MAX_OBJECT_BYTES = 8 * 1024 * 1024

# Format version of an object whose payload is one frame of zstd: parts of levels, and their manifests.
COMPRESSED_VERSION = 2

# Level of zstd: at 6 the parts of a checkpoint are 4 % smaller and take four times the CPU time (measured).
_ZSTD_LEVEL = 3

UPGRADE = "upgrade tierfs"

# Remedy for a damaged object, and for one that stands where the journal's would.
RESTORE = "restore it from a copy of the bucket; if tierfs did not write it, remove it"


class Readable(Protocol):
    """A file, or anything else that is read in order."""

    def read(self, size_bytes: int, /) -> bytes:
        """Return the next bytes; fewer only at the end."""
        ...


class Seekable(Readable, Protocol):
    """The same of a file that can go back."""

    def tell(self) -> int:
        """Return the position of the next byte."""
        ...

    def seek(self, position: int, /) -> object:
        """Go on from there."""
        ...


def frame(message: Message) -> bytes:
    """Return the bytes of a journal object. Raises InvalidRequest when no reader would accept it."""
    return _framed(_payload(message), RECORD_VERSION)


def compressed_frame(message: Message) -> bytes:
    """Return the bytes of a journal object that older versions refuse by its format version. Raises as `frame`."""
    from tierfs.engine.frames import zstd

    return _framed(zstd.compressed(_payload(message), _ZSTD_LEVEL), COMPRESSED_VERSION)


def _payload(message: Message) -> bytes:
    payload = message.SerializeToString(deterministic=True)
    size_bytes = _HEADER.size + len(payload)
    if size_bytes > MAX_OBJECT_BYTES:
        raise InvalidRequest(
            f"a {message.DESCRIPTOR.name} has {size_bytes} bytes; readers take at most {MAX_OBJECT_BYTES}",
            remedy="nothing was written; report the command that made a record of this size",
        )
    return payload


def _framed(payload: bytes, version: int) -> bytes:
    return _HEADER.pack(MAGIC, version, crc32c(payload), len(payload)) + payload


def messages(file: Seekable, name: str, parse: Callable[[bytes, str], M]) -> Iterator[M]:
    """Yield the framed messages of an object. Raises DataLoss for one that is damaged when it is read again, too."""

    def read(start: int) -> M | None:
        file.seek(start)
        framed = read_framed(file, name)
        return None if framed is None else parse(framed, name)

    while (message := twice(partial(read, file.tell()))) is not None:
        yield message


def read_framed(file: Readable, name: str) -> bytes | None:
    """Return the next framed message of a file, unparsed; None at its end. Raises DataLoss before it reads too much."""
    header = file.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise damaged(name, "it ends in the middle of a header")
    magic, _, _, length = _HEADER.unpack(header)
    if magic != MAGIC or length > MAX_OBJECT_BYTES:
        raise damaged(name, "it is not an object of tierfs")
    payload = file.read(length)
    if len(payload) < length:
        raise damaged(name, f"it is truncated: {len(payload)} of {length} bytes of a part")
    return header + payload


def check_size(name: str, length_bytes: int) -> None:
    """Raise DataLoss unless an object of a journal can be this long."""
    if length_bytes > MAX_OBJECT_BYTES:
        raise damaged(name, f"it has {length_bytes} bytes; an object of a journal has at most {MAX_OBJECT_BYTES}")


def damaged(name: str, why: str) -> DataLoss:
    """Return the error of an object that nobody can read."""
    return DataLoss(f"{printable(name)} is damaged: {why}", remedy=RESTORE)


def _parse(data: bytes, name: str, kind: type[M], newest: int = RECORD_VERSION) -> M:
    """Return the message in an object's framed bytes; raises DataLoss naming the object."""
    if len(data) < _HEADER.size:
        raise damaged(name, f"it is truncated: it has {units.count(len(data), 'byte')}")
    magic, version, crc, length = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != MAGIC:
        raise damaged(name, "it is not an object of tierfs")
    if version > newest:
        raise DataLoss(f"{printable(name)} has format version {version}", remedy=UPGRADE)
    if length != len(payload) or crc != crc32c(payload):
        raise damaged(name, "its checksum differs")
    if version == COMPRESSED_VERSION:
        payload = _decompressed(payload, name)
    try:
        return kind.FromString(payload)
    except DecodeError as exc:
        raise damaged(name, "it cannot be decoded") from exc


def _decompressed(payload: bytes, name: str) -> bytes:
    from tierfs.engine.frames import zstd

    try:
        return zstd.decompress(payload, MAX_OBJECT_BYTES)
    except DataLoss as exc:
        raise damaged(name, str(exc)) from exc


parse_entry = partial(_parse, kind=pb.JournalEntry)
parse_manifest = partial(_parse, kind=pb.CheckpointManifest, newest=COMPRESSED_VERSION)
parse_part = partial(_parse, kind=pb.CheckpointPart, newest=COMPRESSED_VERSION)
parse_dump_part = partial(_parse, kind=pb.DumpPart)
parse_entries_part = partial(_parse, kind=pb.EntriesPart)
parse_batch_manifest = partial(_parse, kind=pb.BatchManifest)
parse_batch_marker = partial(_parse, kind=pb.BatchMarker)
parse_segment_dump = partial(_parse, kind=pb.SegmentDump)
