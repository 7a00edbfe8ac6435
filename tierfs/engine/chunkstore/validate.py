"""Checks that every provider shares: names, metadata, ranges, etags and the bytes of a source. No I/O of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import Closed, DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MAX_METADATA_BYTES, MIB
from tierfs.engine.chunkstore.protocol import EtagDiffers, ObjectPiece, Source, StoredObject

# Limit of an S3 key.
MAX_NAME_BYTES = 1024

# Grain of reading, writing and progress (measured: 64 KiB costs 0.1 CPU-s/GiB more).
STEP_BYTES = MIB

# The first step of a read, small because it is the latency of a small read.
FIRST_STEP_BYTES = CRC_BLOCK_BYTES

# Metadata key of the random id that tells an object's own upload from another writer's.
ATTEMPT_KEY = "attempt"

# Object at a location's root that names the store whose cold tier it is.
MARK_NAME = "tierfs-store"

# No underscore: Ceph RGW turns it into a dash.
_METADATA_KEY = re.compile(r"[a-z0-9][a-z0-9.-]*")
_METADATA_VALUE = re.compile(r"([!-~]([ -~]*[!-~])?)?")
_NOT_COMPONENTS = frozenset({"", ".", ".."})


def step_end(done: int) -> int:
    """Return the end of the next step of a read. The first step is one block, to cut the latency of small reads."""
    return FIRST_STEP_BYTES if done < FIRST_STEP_BYTES else done - done % STEP_BYTES + STEP_BYTES


def check_name(name: str) -> None:
    """Raise InvalidRequest unless `name` is a relative path that every provider can hold."""
    try:
        length_bytes = len(name.encode())
    except UnicodeEncodeError as exc:
        raise InvalidRequest(f"{printable(name)}: an object's name must be valid UTF-8") from exc
    if length_bytes > MAX_NAME_BYTES:
        raise InvalidRequest(f"{printable(name[:40])}…: an object's name is at most {MAX_NAME_BYTES} bytes")
    if not is_relative(name):
        raise InvalidRequest(f"{printable(name) or 'the empty name'}: not the relative name of an object")


def is_relative(path: str) -> bool:
    """Return whether `path` has no component that leaves its directory, and no NUL."""
    return "\0" not in path and _NOT_COMPONENTS.isdisjoint(path.split("/"))


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raise InvalidRequest unless every provider can return `metadata` unchanged."""
    for key, value in metadata.items():
        if not _METADATA_KEY.fullmatch(key):
            raise InvalidRequest(f"metadata key {printable(key)!r} is not lower-case ASCII")
        if not _METADATA_VALUE.fullmatch(value):
            raise InvalidRequest(f"metadata {key} is not printable ASCII without spaces around it")
    if sum(len(key) + len(value) for key, value in metadata.items()) > MAX_METADATA_BYTES:
        raise InvalidRequest(f"metadata is more than {MAX_METADATA_BYTES} bytes")


def check_open(closed: bool, subject: object) -> None:
    """Raise Closed when its owner closed `subject`."""
    if closed:
        raise Closed(f"{subject}: closed")


def read_source(name: str, source: Source, offset: int, length_bytes: int) -> Buffer:
    """Return exactly `length_bytes` of `source`; DataLoss when it holds less than it declared."""
    data = source.read(offset, length_bytes)
    if len(data) != length_bytes:
        raise DataLoss(f"{printable(name)}: its source ended at byte {offset + len(data)} of {source.length_bytes}")
    return data


def check_range(stored: StoredObject, offset: int, length_bytes: int) -> None:
    """Raise DataLoss unless the object holds the range, InvalidRequest when there is no such range."""
    if offset < 0:
        raise InvalidRequest(f"{printable(stored.name)}: offset {offset} is negative")
    if offset + length_bytes > stored.length_bytes:
        raise past_end(stored.name, offset, length_bytes, stored.length_bytes)


def past_end(name: str, offset: int, length_bytes: int, object_bytes: int | str) -> DataLoss:
    """Return the error of a read past the end of the object."""
    end = offset + length_bytes
    return DataLoss(f"{printable(name)}: bytes {offset} to {end} were requested, but it has {object_bytes}")


def check_etag(name: str, etag: str, if_match: str | None, length_bytes: int | None) -> None:
    """Raise EtagDiffers when the object, now of `length_bytes`, is another version than the one requested."""
    if if_match is not None and etag != if_match:
        message = f"{printable(name)}: it was replaced: its etag is {printable(etag)}, not {printable(if_match)}"
        raise EtagDiffers(message, etag=etag, length_bytes=length_bytes)


def check_empty_read(stored: StoredObject, offset: int, if_match: str | None) -> None:
    """Check a read of no bytes like any other: the object's version and the offset. Raises EtagDiffers, DataLoss."""
    check_etag(stored.name, stored.etag, if_match, stored.length_bytes)
    check_range(stored, offset, 0)


def is_own(stored: StoredObject, metadata: Mapping[str, str], length_bytes: int) -> bool:
    """Return whether `stored` is of an earlier try of the same upload: same attempt id and size."""
    attempt = metadata.get(ATTEMPT_KEY)
    return attempt is not None and stored.metadata.get(ATTEMPT_KEY) == attempt and stored.length_bytes == length_bytes


def check_pieces(name: str, pieces: Sequence[ObjectPiece]) -> None:
    """Raise InvalidRequest unless an object can be composed of `pieces`."""
    if not pieces:
        raise InvalidRequest(f"{printable(name)}: an object is composed of at least one piece")
    for piece in pieces:
        check_name(piece.name)
        if piece.offset < 0 or piece.length_bytes <= 0:
            end = piece.offset + piece.length_bytes
            raise InvalidRequest(f"{printable(piece.name)}: [{piece.offset}, {end}) is not a piece of an object")


def composed_bytes(pieces: Sequence[ObjectPiece]) -> int:
    """Return the length of the object composed of `pieces`."""
    return sum(piece.length_bytes for piece in pieces)
