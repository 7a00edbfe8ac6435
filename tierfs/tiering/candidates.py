"""The chunks of a segment that could move between the tiers, and the actions that move them.

`offload_actions`, `evictable` and `cold_copies` are pure: chunks of both tiers in, actions or chunks out. The functions
with a transaction read the records that planning works on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Self

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words.types import MAX_PACK_ENTRIES, ByteRange, ChunkState, ObjectId, SegmentId, SegmentKind, Tier
from tierfs.engine.metadata import chains, policies
from tierfs.engine.metadata.chunk_times import ended_ms
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction

# Runs below this fraction of an object share one: at 64 MiB, those below 4 MiB. A request costs 12 to 16 ms, as much as
# moving 4 MiB does (measured on Ceph RGW; docs/design/0013-packs.md).
_LARGEST_PART = 16


@dataclass(frozen=True, slots=True)
class OffloadAction:
    """Make one cold object of neighbouring sealed local chunks."""

    segment_id: SegmentId
    chunks: tuple[ChunkRecord, ...]
    """The first and the last may be parts of one."""
    object_bytes: int = 0
    """Largest object that the segment's policy allows."""
    ledger: bool = False
    """Whether the bytes are a whole ledger, which has objects of its own kind."""
    compresses: bool = False
    """Whether the segment's policy allows a compressed object, when it was planned; actions that differ share none."""

    @classmethod
    def of_ledger(cls, segment_id: SegmentId, length: int) -> Self:
        """Return the action that makes a whole ledger cold, independent of its chunks."""
        return cls(segment_id, (ChunkRecord(start_offset=0, length=length, object_id=ObjectId(0)),), ledger=True)

    @property
    def range(self) -> ByteRange:
        """The segment's bytes that move."""
        return ByteRange(self.chunks[0].start_offset, self.chunks[-1].end_offset)

    def without(self, numbers: Collection[int]) -> Iterator[OffloadAction]:
        """Yield the actions that move all chunks but these: one for each run of neighbours."""
        kept = [index for index in range(len(self.chunks)) if index not in numbers]
        for run in ranges.runs(kept, lambda run, index: index == run[-1] + 1):
            yield replace(self, chunks=tuple(self.chunks[index] for index in run))


@dataclass(frozen=True, slots=True)
class PackAction:
    """Make one cold object of small runs of several segments."""

    actions: tuple[OffloadAction, ...]

    @property
    def bytes(self) -> int:
        """Bytes that become cold."""
        return sum(action.range.length_bytes for action in self.actions)


def is_small(action: OffloadAction, below_bytes: int) -> bool:
    """Return whether the action's object would be small enough to share one; 0 packs nothing, a ledger shares none."""
    return not action.ledger and action.range.length_bytes < min(below_bytes, action.object_bytes // _LARGEST_PART)


def packed(actions: Iterable[OffloadAction], below_bytes: int) -> Iterator[OffloadAction | PackAction]:
    """Yield actions as they come, but small ones (see is_small) together once they fill an object of their limit."""
    groups: dict[tuple[int, bool], tuple[list[OffloadAction], int]] = {}
    for action in actions:
        if not is_small(action, below_bytes):
            yield action
            continue
        object_bytes, key = action.object_bytes, (action.object_bytes, action.compresses)
        group, size = groups.get(key, ([], 0))
        if size + action.range.length_bytes > object_bytes or len(group) >= MAX_PACK_ENTRIES:
            yield _packed(group)
            group, size = [], 0
        group.append(action)
        groups[key] = group, size + action.range.length_bytes
    for group, _ in groups.values():
        yield _packed(group)


def _packed(group: list[OffloadAction]) -> OffloadAction | PackAction:
    """Return the action of a group; a single one shares no object."""
    return group[0] if len(group) == 1 else PackAction(tuple(group))


def offload_actions(
    segment_id: SegmentId,
    sealed_local: Iterable[ChunkRecord],
    cold: Iterable[ChunkRecord],
    object_bytes: int,
    *,
    start_offset: int = 0,
) -> Iterator[OffloadAction]:
    """Yield the objects that make every sealed local chunk cold; each at most `object_bytes`, or one chunk.

    Of a chunk some of whose bytes from `start_offset`, the segment's begin, on are cold, the others are included. Both
    inputs are in offset order.
    """
    covered = ranges.Cover(chunk.range for chunk in cold)
    good = (chunk for chunk in sealed_local if chunk.state is ChunkState.GOOD)
    missing = (part for chunk in good for part in _missing(chunk, covered, start_offset))
    for run in ranges.runs(missing, partial(_fits, object_bytes)):
        yield OffloadAction(segment_id, tuple(run), object_bytes)


def _missing(chunk: ChunkRecord, covered: ranges.Cover, start_offset: int) -> Iterator[ChunkRecord]:
    """Yield the parts of a local chunk that are not cold, the whole chunk if nothing of it is."""
    # An append that the cold tier acknowledged makes its own bytes cold, whatever else its chunk holds; so does a
    # repair that gives up a part of a cold chunk.
    wanted = _wanted(chunk, start_offset)
    parts = covered.missing(wanted)
    if parts == [wanted]:
        yield chunk
        return
    for part in parts:
        shift = part.start - chunk.start_offset
        yield replace(
            chunk, start_offset=part.start, length=part.length_bytes, object_offset=chunk.object_offset + shift
        )


def _fits(object_bytes: int, run: Sequence[ChunkRecord], chunk: ChunkRecord) -> bool:
    return run[-1].end_offset == chunk.start_offset and chunk.end_offset - run[0].start_offset <= object_bytes


def evictable(
    sealed_local: Iterable[ChunkRecord],
    cold: Iterable[PlacedChunk],
    *,
    published_sequence: int,
    cold_before_ms: int,
    start_offset: int = 0,
) -> Iterator[ChunkRecord]:
    """Yield the local chunks whose every byte is in good cold chunks that the journal names (invariant 4).

    `cold_before_ms`: only cold objects made up to then count, which implements the deletion lag.
    """
    copies = cold_copies(sealed_local, cold, published_sequence=published_sequence, start_offset=start_offset)
    for chunk, cold_since_ms in copies:
        if cold_since_ms <= cold_before_ms:
            yield chunk


def cold_copies(
    sealed_local: Iterable[ChunkRecord],
    cold: Iterable[PlacedChunk],
    *,
    published_sequence: int,
    start_offset: int = 0,
) -> Iterator[tuple[ChunkRecord, int]]:
    """Yield the local chunks whose every byte is in good cold chunks that the journal names, and since when (ms).

    Bytes below `start_offset`, the segment's begin, do not count. Both inputs are in offset order and streamed.
    """
    trusted = (
        placed
        for placed in cold
        if placed.chunk.state is ChunkState.GOOD and placed.object.linked_sequence <= published_sequence
    )
    window: list[PlacedChunk] = []
    more = True
    for chunk in sealed_local:
        if not (more or window):
            return
        window = [placed for placed in window if placed.chunk.end_offset > chunk.start_offset]
        while not window or window[-1].chunk.end_offset < chunk.end_offset:
            following = next(trusted, None)
            if following is None:
                more = False
                break
            if following.chunk.end_offset > chunk.start_offset:
                window.append(following)
        since_ms = _covered_since(_wanted(chunk, start_offset), window)
        if since_ms is not None:
            yield chunk, since_ms


def _wanted(chunk: ChunkRecord, start_offset: int) -> ByteRange:
    """Return the readable bytes of a chunk: the first chunk may begin before its segment does."""
    return ByteRange(max(chunk.start_offset, min(start_offset, chunk.end_offset)), chunk.end_offset)


def _covered_since(wanted: ByteRange, placed: Iterable[PlacedChunk]) -> int | None:
    """Return when the newest of the objects that hold all of `wanted` was made; None when a byte is missing."""
    holding = [chunk for chunk in placed if chunk.range.intersect(wanted)]
    if not ranges.covers((chunk.range for chunk in holding), wanted):
        return None
    return max((chunk.object.created_ms for chunk in holding), default=0)


def runs(chunks: Iterable[ChunkRecord]) -> Iterator[list[ChunkRecord]]:
    """Cut chunks into runs of neighbours in the list: the `next` of each is the one after it."""
    return ranges.runs(chunks, lambda run, chunk: run[-1].next == chunk.start_offset)


def sealed_local_chunks(txn: ReadTransaction, segment: SegmentRecord, start: int = 0) -> Iterator[ChunkRecord]:
    """Yield the local chunks except the active one, in offset order."""
    for chunk in chains.chunks(txn, segment.id, Tier.LOCAL, start):
        if not (segment.active and chunk.start_offset == segment.local.last_chunk):
            yield chunk


def up_to(end: int | None, chunks: Iterable[ChunkRecord]) -> Iterator[ChunkRecord]:
    """Yield the chunks that end at an offset or before, which come first; all of them for None."""
    return takewhile(lambda chunk: end is None or chunk.end_offset <= end, chunks)


def placed_cold(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[PlacedChunk]:
    """Yield the cold chunks from the first local one on, with their objects."""
    for chunk in chains.chunks(txn, segment.id, Tier.COLD, segment.local.first_chunk):
        if not chunk.lost:
            yield PlacedChunk(chunk, chains.object_of(txn, chunk))


def objects_to_make(
    txn: ReadTransaction, segment: SegmentRecord, policy: Policy | None = None, end: int | None = None
) -> Iterator[OffloadAction]:
    """Yield the objects that make every sealed local chunk cold, as `policy` says (default: that in force).

    With `end` only chunks that end there or before. A ledger becomes cold as a whole, once it is closed.
    """
    if segment.kind is SegmentKind.LEDGER:
        due = segment.sealed and segment.local.bytes == segment.length > 0 and not segment.whole_in_cold
        if not segment.length:
            from tierfs.engine.metadata import empty_ledgers  # commands that look at other segments do not need it

            due = empty_ledgers.is_due(txn, segment)
        due = due and (end is None or end >= segment.length)
        return iter((OffloadAction.of_ledger(segment.id, segment.length),) if due else ())
    start = _first_local_only(txn, segment)
    policy = policies.effective(txn, segment) if policy is None else policy
    local = up_to(end, sealed_local_chunks(txn, segment, start))
    first = chains.chunk_at(txn, segment.id, Tier.LOCAL, start)  # its beginning may be cold
    begin = start if first is None else min(start, first.start_offset)
    cold = chains.chunks(txn, segment.id, Tier.COLD, begin) if segment.cold.count else ()
    actions = offload_actions(segment.id, local, cold, policy.object_bytes, start_offset=segment.start_offset)
    return (replace(action, compresses=True) for action in actions) if policy.compresses else actions


def _first_local_only(txn: ReadTransaction, segment: SegmentRecord) -> int:
    """Return the offset to plan from: the end of the cold chain if it has no gaps, else the begin of local bytes."""
    cold = segment.cold
    first_local = max(segment.start_offset, segment.local.first_chunk)  # not linear in chunks that are only cold
    last = chains.chunk_at(txn, segment.id, Tier.COLD, cold.last_chunk) if cold.count else None
    if last is None or cold.first_chunk > segment.start_offset:
        return first_local
    gapless = last.end_offset - cold.first_chunk == cold.bytes
    return max(segment.start_offset, last.end_offset) if gapless else first_local


def action_ended_ms(txn: ReadTransaction, segment: SegmentRecord, action: OffloadAction) -> int:
    """Return when the bytes of an action were complete."""
    return segment.sealed_ms if action.ledger else ended_ms(txn, segment, action.chunks[0].range)


def active_since_ms(txn: ReadTransaction, segment: SegmentRecord, active: ChunkRecord | None) -> int:
    """Return the begin of a segment's active chunk, or of an open ledger; 0 without one."""
    if segment.kind is SegmentKind.LEDGER:
        return 0 if segment.sealed else segment.began_ms
    return 0 if active is None else chains.object_of(txn, active).created_ms
