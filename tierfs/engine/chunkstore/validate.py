"""Checks that every provider shares: names, metadata, ranges, etags and the bytes of a source. No I/O of its own.

`read_steps`, `ObjectFile` and `PiecesSource` read one version of an object in order, through any storage.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import Closed, DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MAX_METADATA_BYTES, MIB
from tierfs.engine.chunkstore.protocol import ChunkStorage, EtagDiffers, ObjectPiece, Source, StoredObject

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
    return DataLoss(f"{printable(name)}: bytes {offset} to {end} were asked for, it has {object_bytes}")


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
            raise InvalidRequest(f"{printable(piece.name)}: [{piece.offset}, {end}) is no piece of an object")


def composed_bytes(pieces: Sequence[ObjectPiece]) -> int:
    """Return the length of the object composed of `pieces`."""
    return sum(piece.length_bytes for piece in pieces)


# Bytes per request and in memory: the part size of our own uploads, a multiple of the checksum grid.
READ_STEP_BYTES = 8 * MIB


def read_steps(
    storage: ChunkStorage, stored: StoredObject, start: int = 0, end: int | None = None, *, appended: bool = False
) -> Iterator[memoryview]:
    """Yield the bytes [start, end) of one version of an object, in order; a step is valid until the next.

    `appended`: of any version, as its writer only appends. Raises EtagDiffers.
    """
    end = stored.length_bytes if end is None else end
    buffer = memoryview(bytearray(min(READ_STEP_BYTES, end - start)))
    for at in range(start, end, READ_STEP_BYTES):
        view = buffer[: min(READ_STEP_BYTES, end - at)]
        storage.read_into(stored.name, at, view, if_match=None if appended else stored.etag)
        yield view


class ObjectFile:
    """An object read in order, never more of it than requested."""

    def __init__(self, storage: ChunkStorage, stored: StoredObject) -> None:
        self._storage = storage
        self._stored = stored
        self._at = 0

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        buffer = bytearray(min(size_bytes, self._stored.length_bytes - self._at))
        if buffer:
            self._storage.read_into(self._stored.name, self._at, memoryview(buffer), if_match=self._stored.etag)
        self._at += len(buffer)
        return bytes(buffer)

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, position: int) -> None:
        """Go on from there."""
        self._at = position


class PiecesSource:
    """A Source over pieces, each of one version. Read in order, it asks for several steps at once."""

    def __init__(self, storage: ChunkStorage, pieces: Sequence[ObjectPiece]) -> None:
        """Read the pieces from `storage`, at no time more than is asked for and one step."""
        self._storage = storage
        self._pieces = pieces
        self._starts = list(accumulate((piece.length_bytes for piece in pieces), initial=0))
        self._ahead = threading.local()
        """A thread's last bytes and their offset."""

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._starts[-1]

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """See Source.read. Raises EtagDiffers for a piece that was replaced."""
        start, view = getattr(self._ahead, "bytes", (0, memoryview(b"")))
        if not start <= offset <= offset + length_bytes <= start + len(view):
            size = max(length_bytes, min(READ_STEP_BYTES, self.length_bytes - offset))
            start, view = offset, memoryview(bytearray(size))
            self._fill(start, view)
            self._ahead.bytes = start, view
        return view[offset - start :][:length_bytes]

    def _fill(self, offset: int, view: memoryview) -> None:
        for piece, start in zip(self._pieces, self._starts, strict=False):
            first, end = max(offset, start), min(offset + len(view), start + piece.length_bytes)
            if first < end:
                wanted = view[first - offset : end - offset]
                self._storage.read_into(piece.name, piece.offset + first - start, wanted, if_match=piece.etag)
