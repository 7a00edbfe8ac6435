"""adopt pravega: a segment is a segment, at Pravega's own offsets, from SLTS or from rolling storage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tierfs.adoption.plan import LeftOut, Plan, readable
from tierfs.adoption.pravega_layout import Chunk, cover, rolling
from tierfs.adoption.pravega_names import (
    ATTRIBUTES,
    HEADER_SUFFIX,
    MAX_HEADER_BYTES,
    SYSTEM_PREFIX,
    is_rolling_chunk,
    parse_chunk_name,
    parse_header,
)
from tierfs.adoption.runs import add_runs
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.errors import InvalidRequest, TierfsError
from tierfs.names import printable


def plan_pravega(plan: Plan, storage: ChunkStorage, found: Iterable[StoredObject], into: str) -> None:
    """Each segment becomes INTO/<its name>; behind a hole a further one begins, whose name ends in its offset.

    Headers are read, small as they are. Pravega's own segments and tables of attributes are left out.
    """
    objects = {one.name: one for one in readable(plan, found)}
    segments: dict[str, list[Chunk]] = defaultdict(list)
    headers: list[StoredObject] = []
    others: list[StoredObject] = []
    for one in objects.values():
        chunk = parse_chunk_name(one.name)
        if one.name.startswith(SYSTEM_PREFIX) or ATTRIBUTES in one.name:
            plan.left_out.append(LeftOut(one.name, "Pravega's own: a system segment or a table of attributes"))
        elif chunk is not None:
            segments[chunk.segment].append(Chunk(chunk, one))
        elif one.name.endswith(HEADER_SUFFIX):
            headers.append(one)
        else:
            others.append(one)
    for name, chunks in sorted(segments.items()):
        _plan_chunks(plan, name, chunks, into)
    used = {used for header in headers for used in _plan_header(plan, storage, header, objects, into)}
    for one in others:
        if one.name not in used:
            rolled = is_rolling_chunk(one.name)
            why = "a chunk that no header names" if rolled else "not a name of Pravega's"
            plan.left_out.append(LeftOut(one.name, why))


def _plan_chunks(plan: Plan, name: str, chunks: list[Chunk], into: str) -> None:
    extents, rest = cover(chunks)
    why = "a chunk that a later owner or a later try replaced"
    plan.left_out.extend(LeftOut(one.name, why) for one in rest)
    add_runs(plan, name, extents, into)


def _plan_header(
    plan: Plan, storage: ChunkStorage, header: StoredObject, objects: Mapping[str, StoredObject], into: str
) -> list[str]:
    """Plan one segment of rolling storage; returns the names of the chunks that its header names."""
    name = header.name.removesuffix(HEADER_SUFFIX)
    if not header.length_bytes:
        plan.left_out.append(LeftOut(header.name, "an empty header, which stands for no segment"))
        return []
    named: list[str] = []
    try:
        chunks = parse_header(_read_header(storage, header), header.name)
        named = [chunk.name for chunk in chunks]
        add_runs(plan, name, rolling(chunks, objects), into)
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
