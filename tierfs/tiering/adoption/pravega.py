"""adopt pravega: each Pravega segment becomes a segment, at Pravega's own offsets, from SLTS or from rolling storage.

{segment}.E-{epoch}-O-{offset}.{uuid}     a chunk of simplified long-term storage (slts.py)
{segment}$header                          the header of a segment in rolling storage, before SLTS
{segment}$offset.{offset}                 one of its chunks, which the header names

The parsers and the choice of chunks (`rolling`) are pure; every name and byte is untrusted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound, TierfsError
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.tiering.adoption.plan import (
    MAX_OBJECTS,
    MAX_OFFSET,
    AdoptionPlan,
    ForeignExtent,
    LeftOut,
    SegmentPlan,
    add_runs,
    extent_of,
    offset,
    readable,
)
from tierfs.tiering.adoption.slts import Chunk, cover, parse_chunk_name

HEADER_SUFFIX = "$header"
SYSTEM_PREFIX = "_system/"
# Part of the names of a segment's table of attributes, which holds no user data.
ATTRIBUTES = "$attributes"

# Some hundred thousand chunks; a header is read into memory.
MAX_HEADER_BYTES = 64 * 1024 * 1024

_ROLLING_CHUNK = re.compile(r".+\$offset\.[0-9]+", re.DOTALL)

_SEPARATOR, _EQUALS, _AT = "&", "=", "@"
_MAX_SIZE, _CONCAT = "maxsize", "concat"


@dataclass(frozen=True, slots=True)
class HeaderChunk:
    """One chunk as a header names it."""

    name: str
    start_offset: int


def is_rolling_chunk(name: str) -> bool:
    """Return whether a header should name this object."""
    return _ROLLING_CHUNK.fullmatch(name) is not None


def parse_header(data: bytes, name: str) -> list[HeaderChunk]:
    """Return the chunks that a header names, by ascending offset. Raises InvalidRequest, which names the header.

    Entries are `key=value&`. `concat=COUNT@OFFSET` means that the next COUNT chunks are from another segment and lie
    OFFSET after their own offsets, of which the first is 0. If it is not, that concat was never completed, and the
    entry is ignored.
    """
    chunks: list[HeaderChunk] = []
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
            if start > MAX_OFFSET or (chunks and start < chunks[-1].start_offset):
                raise InvalidRequest(f"{printable(name)}: {printable(entry)!r} is out of order or out of range")
            chunks.append(HeaderChunk(value, start))
    return chunks


class _Shift:
    """Shift of the offsets of a concat entry's chunks."""

    def __init__(self, count: int = 0, by: int = 0) -> None:
        self._count = self._left = count
        self._by = by

    def apply(self, start: int) -> int:
        """Return the true offset of the next chunk."""
        if start and self._left == self._count:
            self._count = self._left = 0  # a concat that was never completed
            return start
        if not self._left:
            return start
        self._left -= 1
        return start + self._by


def _entries(data: bytes, name: str) -> list[str]:
    try:
        entries = [entry for entry in data.decode().split(_SEPARATOR) if entry]
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"{printable(name)} is not a Pravega header: it is not UTF-8") from exc
    if len(entries) > MAX_OBJECTS:
        raise InvalidRequest(f"{printable(name)} lists more than {MAX_OBJECTS:,} chunks")
    return entries


def _concat(value: str, name: str, entry: str) -> _Shift:
    count, _, by = value.partition(_AT)
    counted, shifted = offset(count), offset(by)
    if counted is None or shifted is None:
        raise _bad(name, entry)
    return _Shift(counted, shifted)


def _bad(name: str, entry: str) -> InvalidRequest:
    return InvalidRequest(f"{printable(name)}: {printable(entry[:80])!r} is not an entry of a header")


def rolling(header: Sequence[HeaderChunk], objects: Mapping[str, StoredObject]) -> list[ForeignExtent]:
    """Return the extents of a segment in rolling storage.

    A chunk ends where the next one begins, the last one with its object. Chunks missing at the head were truncated.
    Raises NotFound for any other missing chunk, DataLoss for one that is too short.
    """
    extents: list[ForeignExtent] = []
    ends = [*(chunk.start_offset for chunk in header[1:]), None]
    for chunk, end in zip(header, ends, strict=False):  # a header without chunks has one end more
        held = objects.get(chunk.name)
        if end == chunk.start_offset or (held is None and not extents and end is not None):
            continue
        if held is None:
            raise NotFound(f"{printable(chunk.name)}: its segment's header lists it, but it is missing")
        if end is not None and held.length_bytes < end - chunk.start_offset:
            length = end - chunk.start_offset
            raise DataLoss(f"{printable(chunk.name)} has {held.length_bytes} of the {length} bytes in its header")
        extents.append(extent_of(chunk.start_offset, held, end))
    return extents


def plan_pravega(plan: AdoptionPlan, storage: ChunkStorage, listed: Iterable[StoredObject], into: str) -> None:
    """Plan each segment as INTO/<its name>; after a hole a further one begins, whose name ends in its offset.

    Reads the headers, which are small. Pravega's own segments and tables of attributes are left out.
    """
    objects = {stored.name: stored for stored in readable(plan, listed)}
    segments: dict[str, list[Chunk]] = defaultdict(list)
    headers: list[StoredObject] = []
    others: list[StoredObject] = []
    for stored in objects.values():
        chunk = parse_chunk_name(stored.name)
        if stored.name.startswith(SYSTEM_PREFIX) or ATTRIBUTES in stored.name:
            plan.left_out.append(LeftOut(stored.name, "Pravega's own: a system segment or a table of attributes"))
        elif chunk is not None:
            segments[chunk.segment].append(Chunk(chunk, stored))
        elif stored.name.endswith(HEADER_SUFFIX):
            headers.append(stored)
        else:
            others.append(stored)
    for name, chunks in sorted(segments.items()):
        _plan_chunks(plan, name, chunks, into)
    used = {used for header in headers for used in _plan_header(plan, storage, header, objects, into)}
    for stored in others:
        if stored.name not in used:
            rolled = is_rolling_chunk(stored.name)
            why = "a chunk that no header lists" if rolled else "not a name of Pravega's"
            plan.left_out.append(LeftOut(stored.name, why))


def _plan_chunks(plan: AdoptionPlan, name: str, chunks: list[Chunk], into: str) -> None:
    try:
        covered = cover(chunks)
    except InvalidRequest as exc:
        plan.refused.append((f"{into}/{name}", exc))
        return
    plan.left_out.extend(covered.rest)
    add_runs(plan, name, covered.extents, into, unfinished=True)


def _plan_header(
    plan: AdoptionPlan, storage: ChunkStorage, header: StoredObject, objects: Mapping[str, StoredObject], into: str
) -> list[str]:
    """Plan one segment of rolling storage; return the names of the chunks in its header."""
    name = header.name.removesuffix(HEADER_SUFFIX)
    if not header.length_bytes:
        plan.left_out.append(LeftOut(header.name, "an empty header, without a segment"))
        return []
    named: list[str] = []
    try:
        chunks = parse_header(_read_header(storage, header), header.name)
        named = [chunk.name for chunk in chunks]
        if named:
            add_runs(plan, name, rolling(chunks, objects), into)
        else:  # Pravega writes the header before the first chunk
            plan.add(SegmentPlan(f"{into}/{name}", modified_ms=header.modified_ms), f"{into}/{name}")
    except TierfsError as exc:
        plan.refused.append((f"{into}/{name}", exc))
    return named


def _read_header(storage: ChunkStorage, header: StoredObject) -> bytes:
    if header.length_bytes > MAX_HEADER_BYTES:
        limit = f"a header has at most {MAX_HEADER_BYTES >> 20} MiB"
        raise InvalidRequest(f"{printable(header.name)} has {header.length_bytes} bytes; {limit}")
    buffer = memoryview(bytearray(header.length_bytes))
    storage.read_into(header.name, 0, buffer, if_match=header.etag)
    return bytes(buffer)
