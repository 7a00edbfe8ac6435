"""Pravega's simplified long-term storage: which bytes of which chunks are a segment's, by names and lengths alone.

{segment}.E-{epoch}-O-{offset}.{uuid}

Chunks come from three operations of Pravega's (io.pravega.segmentstore.storage.chunklayer, release 0.14):

* WriteOperation.addNewChunk begins a chunk at the segment's length, in the epoch of the container that writes: after
  the last one is full, at the first write after a fail-over (isFirstWriteAfterFailover), and after a write that failed
  half-way (skipOverFailedChunk). The length moves with the commit, after the bytes; so what a chunk has beyond the
  beginning of its successor was never acknowledged, and a deposed container may write on until its commit is refused.
* TruncateOperation.relocateFirstChunkIfRequired copies the live rest of the first chunk into a chunk that begins at the
  new start, in the epoch of the container that truncates, and ends where the old one does; the chunks after it keep
  their lower epochs. It is done if 80 % of the old chunk are dead (minPercentForTruncateRelocation). Copies that are
  not committed, and old chunks, are deleted a minute later (GarbageCollector.trackNewChunk, addChunksToGarbage).
* DefragmentOperation joins chunks into the first of them, which keeps its name.

Pure; every name is untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.tiering.adoption.plan import ForeignExtent, LeftOut, extent_of, offset

_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CHUNK = re.compile(rf"(?P<segment>.+)\.E-(?P<epoch>[0-9]+)-O-(?P<offset>[0-9]+)\.{_UUID}", re.DOTALL)

# Dead bytes of a first chunk from which on Pravega copies its rest: its default, ChunkedSegmentStorageConfig.
_RELOCATED_PERCENT = 80

REPLACED = "a chunk replaced by a later owner or attempt"
HALF_COPIED = "a copy of the rest of the first chunk that Pravega did not finish"


@dataclass(frozen=True, slots=True)
class ChunkName:
    """The fields of a chunk's name."""

    segment: str
    epoch: int
    """Epoch of the container that created it: a later owner has a higher one."""
    offset: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as it is listed."""

    name: ChunkName
    object: StoredObject

    @property
    def start(self) -> int:
        """Offset of its first byte."""
        return self.name.offset

    @property
    def end(self) -> int:
        """Offset just past its last byte, acknowledged or not."""
        return self.name.offset + self.object.length_bytes


def parse_chunk_name(name: str) -> ChunkName | None:
    """Parse a chunk's name; None for any other name."""
    match = _CHUNK.fullmatch(name)
    if match is None:
        return None
    epoch, start = offset(match["epoch"]), offset(match["offset"])
    return None if epoch is None or start is None else ChunkName(match["segment"], epoch, start)


@dataclass(slots=True)
class Covered:
    """The bytes of a segment."""

    extents: list[ForeignExtent] = field(default_factory=list)
    """By ascending offset; there may be holes between them."""
    rest: list[LeftOut] = field(default_factory=list)
    """Chunks of which no byte counts."""


def cover(chunks: Sequence[Chunk]) -> Covered:
    """Choose the chunks of one segment, and cut each where the next one begins.

    * Of chunks with the same beginning, the highest epoch counts, of these the longest.
    * A chunk of a lower epoch is a deposed owner's if it begins inside or after a run that a higher one continued. A
      chunk continues a run by more bytes than the run has; one that begins a run, or lies in the chunk before it and
      ends where another begins, is the relocated rest of a first chunk, and deposes nobody.
    * A copy of which bytes are missing does not count while its original is continued.

    Raises InvalidRequest for a chunk that may be either the beginning of a copy or a new owner's first bytes.
    """
    covered = Covered()
    ordered = sorted(chunks, key=lambda chunk: (chunk.start, -chunk.name.epoch, -chunk.object.length_bytes))
    taken: list[Chunk] = []
    deposed = -1  # the highest epoch that is known to have continued the segment: lower ones are deposed
    for number, chunk in enumerate(ordered):
        last = taken[-1] if taken else None
        if last is not None and last.start == chunk.start:
            if chunk.name.epoch < last.name.epoch:
                deposed = max(deposed, last.name.epoch)
            covered.rest.append(LeftOut(chunk.object.name, REPLACED))
        elif chunk.name.epoch < deposed or _is_inside_higher(last, chunk):
            covered.rest.append(LeftOut(chunk.object.name, REPLACED))
        elif last is not None and _is_half_copied(last, chunk, ordered[number + 1 :], deposed):
            covered.rest.append(LeftOut(chunk.object.name, HALF_COPIED))
        else:
            if last is not None and chunk.start <= last.end and not _is_copy(last, chunk, ordered[number + 1 :]):
                deposed = max(deposed, chunk.name.epoch)
            taken.append(chunk)
    covered.extents = [extent_of(chunk.start, chunk.object, next_one.start) for chunk, next_one in pairwise(taken)]
    covered.extents += [extent_of(chunk.start, chunk.object) for chunk in taken[-1:]]
    return covered


def _is_inside_higher(last: Chunk | None, chunk: Chunk) -> bool:
    """Return whether a chunk begins within one of a higher epoch: copies end where their successors begin."""
    return last is not None and chunk.name.epoch < last.name.epoch and chunk.start < last.end


def _is_copy(last: Chunk, chunk: Chunk, later: Sequence[Chunk]) -> bool:
    """Return whether a chunk holds the rest of the one before it, whose successor begins where both end.

    A new owner's chunk may for a moment be as long as that; its next bytes settle it, and those of the chunk before are
    then cut.
    """
    return chunk.end <= last.end and any(
        other.start == chunk.end and other.name.epoch < chunk.name.epoch for other in later
    )


def _is_half_copied(last: Chunk, chunk: Chunk, later: Sequence[Chunk], deposed: int) -> bool:
    """Return whether a chunk lies within the one before it, which others continue, and ends before these begin.

    Raises InvalidRequest if that is not certain.
    """
    follow = [other for other in later if chunk.start < other.start <= last.end and other.name.epoch >= deposed]
    if not follow or follow[0].start <= chunk.end:
        return False
    if any(other.name.epoch >= chunk.name.epoch for other in follow):
        return True  # its owner, or a later one, saw a length that this chunk does not reach
    if (chunk.start - last.start) * 100 >= _RELOCATED_PERCENT * last.object.length_bytes:
        return True
    raise InvalidRequest(
        f"{printable(chunk.object.name)} is either an unfinished copy of bytes in {printable(last.object.name)}, or "
        f"from a later owner than {printable(follow[0].object.name)}",
        remedy="adopt it again in some minutes, when Pravega has written more or has deleted it",
    )
