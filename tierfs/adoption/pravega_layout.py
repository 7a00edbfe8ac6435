"""Which bytes of which chunks are a Pravega segment, as far as names, headers and lengths tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tierfs.adoption.plan import Extent
from tierfs.adoption.pravega_names import ChunkName, HeaderChunk
from tierfs.chunkstore.protocol import StoredObject
from tierfs.errors import DataLoss, NotFound
from tierfs.names import printable


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of SLTS."""

    name: ChunkName
    object: StoredObject


def cover(chunks: Sequence[Chunk]) -> tuple[list[Extent], list[StoredObject]]:
    """The extents of a segment in SLTS, by ascending offset, and the objects that are no part of it.

    Who takes a segment over begins a new chunk at its length, in a higher epoch. So a chunk that begins at
    or behind one of a higher epoch was written by an owner that did not know yet that it was deposed; and
    what a chunk holds beyond the beginning of the next one was written and never acknowledged. Of two
    chunks of one epoch and offset the longer one is taken: the other is a write that was tried again.
    """
    taken: list[Chunk] = []
    rest: list[StoredObject] = []
    highest = -1
    for chunk in sorted(chunks, key=lambda one: (one.name.offset, -one.name.epoch, -one.object.length_bytes)):
        same_start = bool(taken) and taken[-1].name.offset == chunk.name.offset
        if chunk.name.epoch < highest or same_start:
            rest.append(chunk.object)
            continue
        highest = chunk.name.epoch
        taken.append(chunk)
    extents = [_extent(chunk.name.offset, following.name.offset, chunk.object) for chunk, following in pairwise(taken)]
    extents += [_extent(chunk.name.offset, None, chunk.object) for chunk in taken[-1:]]
    return extents, rest


def rolling(header: Sequence[HeaderChunk], objects: Mapping[str, StoredObject]) -> list[Extent]:
    """The extents of a segment in rolling storage.

    A chunk ends where the next one begins, the last one with its object. Chunks that are gone from the
    head were truncated. Raises NotFound for any other that is gone, DataLoss for one that is too short.
    """
    found: list[Extent] = []
    ends = [*(chunk.start_offset for chunk in header[1:]), None]
    for chunk, end in zip(header, ends, strict=True):
        held = objects.get(chunk.name)
        if end == chunk.start_offset or (held is None and not found and end is not None):
            continue
        if held is None:
            raise NotFound(f"{printable(chunk.name)}: its segment's header names it, and it is not there")
        if end is not None and held.length_bytes < end - chunk.start_offset:
            length = end - chunk.start_offset
            raise DataLoss(f"{printable(chunk.name)} has {held.length_bytes} of the {length} bytes its header says")
        found.append(_extent(chunk.start_offset, end, held))
    return found


def _extent(start: int, end: int | None, held: StoredObject) -> Extent:
    length = held.length_bytes if end is None else min(held.length_bytes, end - start)
    return Extent(start, length, held)
