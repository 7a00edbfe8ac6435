"""Names and headers of Pravega's long-term storage. Pure; every name and byte is hostile.

{segment}.E-{epoch}-O-{offset}.{uuid}     a chunk of simplified long-term storage (SLTS)
{segment}$header                          the header of a segment in rolling storage, before SLTS
{segment}$offset.{offset}                 one of its chunks, which the header names
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tierfs.adoption.names import offset
from tierfs.adoption.plan import MAX_OBJECTS, MAX_OFFSET
from tierfs.errors import InvalidRequest
from tierfs.names import printable

HEADER_SUFFIX = "$header"
SYSTEM_PREFIX = "_system/"
ATTRIBUTES = "$attributes"
"""Part of the names of a segment's table of attributes, which is no data of its users."""

MAX_HEADER_BYTES = 64 * 1024 * 1024
"""Some hundred thousand chunks; a header is read into memory."""

_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CHUNK = re.compile(rf"(?P<segment>.+)\.E-(?P<epoch>\d+)-O-(?P<offset>\d+)\.{_UUID}", re.DOTALL)
_ROLLING_CHUNK = re.compile(r".+\$offset\.\d+", re.DOTALL)

_SEPARATOR, _EQUALS, _AT = "&", "=", "@"
_MAX_SIZE, _CONCAT = "maxsize", "concat"


@dataclass(frozen=True, slots=True)
class ChunkName:
    """What the name of a chunk in SLTS says."""

    segment: str
    epoch: int
    """Of the container that created it: a later owner has a higher one."""
    offset: int


@dataclass(frozen=True, slots=True)
class HeaderChunk:
    """One chunk as a header names it."""

    name: str
    start_offset: int


def parse_chunk_name(name: str) -> ChunkName | None:
    """What a chunk's name says; None for any other name."""
    found = _CHUNK.fullmatch(name)
    if found is None:
        return None
    epoch, start = offset(found["epoch"]), offset(found["offset"])
    return None if epoch is None or start is None else ChunkName(found["segment"], epoch, start)


def is_rolling_chunk(name: str) -> bool:
    """Whether a header should name this object."""
    return _ROLLING_CHUNK.fullmatch(name) is not None


def parse_header(data: bytes, name: str) -> list[HeaderChunk]:
    """The chunks that a header names, by ascending offset. Raises InvalidRequest naming the header.

    Entries are `key=value&`. `concat=COUNT@OFFSET` says that the next COUNT chunks came with another
    segment and lie OFFSET further than they say; their first one says 0. If it does not, that concat never
    came to be, and the entry counts for nothing.
    """
    found: list[HeaderChunk] = []
    shift = _Shift()
    for entry in _entries(data, name):
        key, equals, value = entry.partition(_EQUALS)
        if not (key and equals and value):
            raise _bad(name, entry)
        if key.lower() == _MAX_SIZE:
            if offset(value) is None:
                raise _bad(name, entry)
        elif key.lower() == _CONCAT:
            shift = _concat(value, name, entry)
        else:
            said = offset(key)
            if said is None:
                raise _bad(name, entry)
            start = shift.apply(said)
            if start > MAX_OFFSET or (found and start < found[-1].start_offset):
                raise InvalidRequest(f"{printable(name)}: {printable(entry)!r} is out of order or out of range")
            found.append(HeaderChunk(value, start))
    return found


class _Shift:
    """Where the chunks of a concat entry lie."""

    def __init__(self, count: int = 0, by: int = 0) -> None:
        self._count = self._left = count
        self._by = by

    def apply(self, start: int) -> int:
        """The true offset of the next chunk."""
        if start and self._left == self._count:
            self._count = self._left = 0  # a concat that never came to be
            return start
        if not self._left:
            return start
        self._left -= 1
        return start + self._by


def _entries(data: bytes, name: str) -> list[str]:
    try:
        entries = [entry for entry in data.decode().split(_SEPARATOR) if entry]
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"{printable(name)} is no header of Pravega's: it is not UTF-8") from exc
    if len(entries) > MAX_OBJECTS:
        raise InvalidRequest(f"{printable(name)} names more than {MAX_OBJECTS:,} chunks")
    return entries


def _concat(value: str, name: str, entry: str) -> _Shift:
    count, _, by = value.partition(_AT)
    counted, shifted = offset(count), offset(by)
    if counted is None or shifted is None:
        raise _bad(name, entry)
    return _Shift(counted, shifted)


def _bad(name: str, entry: str) -> InvalidRequest:
    return InvalidRequest(f"{printable(name)}: {printable(entry[:80])!r} is no entry of a header")
