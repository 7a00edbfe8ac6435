"""Edits of a segment's linked list of chunks, as pure functions.

An edit takes the chain's head (TierState) and the neighbours of the place it changes, and returns which records to
write and which to remove. The caller loads neighbours by one cursor seek, so every edit is O(changed chunks). A list
may have gaps; it never overlaps (ChunkRecord.check).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, ChunkState
from tierfs.engine.metadata.records import ChunkRecord, TierState, require


@dataclass(frozen=True, slots=True)
class ChainEdit:
    """Result of one edit: the new head, records to write, start offsets to remove.

    `merged`: a new chunk became part of its neighbour, so that its object has no new reference.
    """

    state: TierState
    put: tuple[ChunkRecord, ...] = ()
    remove: tuple[int, ...] = ()
    merged: bool = False


def insert(
    state: TierState,
    new: ChunkRecord,
    *,
    previous: ChunkRecord | None,
    following: ChunkRecord | None,
    merges: bool = True,
) -> ChainEdit:
    """Link `new` between its neighbours in offset order.

    A chunk that continues `previous` in the same object and state merges into it, unless `merges` is false.
    Raises DataLoss on overlap.
    """
    at = new.start_offset
    if not state.count and not new.next:  # most segments have one chunk
        return ChainEdit(TierState(first_chunk=at, last_chunk=at, count=1, bytes=new.held_bytes), (new,))
    require(previous is None or previous.end_offset <= new.start_offset, "chunks overlap", new.start_offset)
    require(following is None or new.end_offset <= following.start_offset, "chunks overlap", new.start_offset)
    grown = replace(state, bytes=state.bytes + new.held_bytes)
    if merges and previous is not None and previous.state is new.state and continues(previous, new):
        return ChainEdit(grown, (replace(previous, length=previous.length + new.length),), merged=True)
    linked = replace(new, next=following.start_offset if following is not None else 0)
    put = (linked,) if previous is None else (replace(previous, next=new.start_offset), linked)
    return ChainEdit(
        replace(
            grown,
            count=state.count + 1,
            first_chunk=new.start_offset if previous is None else state.first_chunk,
            last_chunk=new.start_offset if following is None else state.last_chunk,
        ),
        put,
    )


def grow_last(state: TierState, last: ChunkRecord, length: int) -> ChainEdit:
    """Grow the chain's last chunk by `length` bytes: an append to the active chunk."""
    require(last.start_offset == state.last_chunk and last.next == 0, "not the last chunk", last.start_offset)
    return ChainEdit(replace(state, bytes=state.bytes + length), (replace(last, length=last.length + length),))


def remove(
    state: TierState, removed: Sequence[ChunkRecord], *, previous: ChunkRecord | None, following: ChunkRecord | None
) -> ChainEdit:
    """Unlink a run of neighbouring chunks, in offset order, from between `previous` and `following`."""
    if not removed:
        return ChainEdit(state)
    for left, right in pairwise(removed):
        require(left.next == right.start_offset, "chunks are not neighbours", left.start_offset, right.start_offset)
    count = state.count - len(removed)
    remaining_bytes = state.bytes - sum(chunk.held_bytes for chunk in removed)
    removed_starts = tuple(chunk.start_offset for chunk in removed)
    if count == 0:
        return ChainEdit(TierState(), remove=removed_starts)
    after = following.start_offset if following is not None else 0
    put = () if previous is None else (replace(previous, next=after),)
    first = after if previous is None else state.first_chunk
    last = state.last_chunk if previous is None or following is not None else previous.start_offset
    return ChainEdit(
        TierState(first_chunk=first, last_chunk=last, count=count, bytes=remaining_bytes), put, removed_starts
    )


def cut_first(state: TierState, first: ChunkRecord, start_offset: int) -> ChainEdit:
    """Let the chain's first chunk begin at `start_offset`, which it holds; its object keeps the bytes before it."""
    cut_bytes = start_offset - first.start_offset
    require(first.start_offset == state.first_chunk and 0 < cut_bytes < first.length, "no cut", first.start_offset)
    shorter = replace(
        first, start_offset=start_offset, length=first.length - cut_bytes, object_offset=first.object_offset + cut_bytes
    )
    if not first.object_id:
        shorter = replace(shorter, object_offset=0)
    last = start_offset if state.count == 1 else state.last_chunk
    remaining_bytes = state.bytes - first.held_bytes + shorter.held_bytes
    return ChainEdit(
        replace(state, first_chunk=start_offset, last_chunk=last, bytes=remaining_bytes),
        (shorter,),
        (first.start_offset,),
    )


def continues(previous: ChunkRecord, new: ChunkRecord) -> bool:
    """Return whether `new` is the next run of bytes of `previous`'s object, so that both can be one chunk.

    Good and suspect are treated alike: the mark is not journaled, so no boundary of a chain may depend on it.
    """
    return (
        previous.object_id == new.object_id
        and previous.end_offset == new.start_offset
        and previous.object_offset + previous.length == new.object_offset
        and previous.lost == new.lost
    )


def joined(chunks: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    """Return chunks in offset order, those that continue each other merged; suspect where any part of one is."""
    merged: list[ChunkRecord] = []
    for chunk in chunks:
        if merged and continues(merged[-1], chunk):
            last = merged[-1]
            state = max(last.state, chunk.state)
            merged[-1] = replace(last, length=last.length + chunk.length, next=chunk.next, state=state)
        else:
            merged.append(chunk)
    return merged


def part(chunk: ChunkRecord, kept: ByteRange, state: ChunkState) -> ChunkRecord:
    """Return a range of a chunk as a chunk of its own, not linked."""
    moved = kept.start - chunk.start_offset if chunk.object_id else 0
    return replace(
        chunk,
        start_offset=kept.start,
        length=kept.length_bytes,
        object_offset=chunk.object_offset + moved,
        next=0,
        state=state,
    )
