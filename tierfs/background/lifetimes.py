"""Lifetimes: the segments whose policies end them or their bytes, as retention_policy.py sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tierfs.background.candidates import ended_ms
from tierfs.background.retention_policy import Member, Run
from tierfs.metadata import chains, directories, keys, policies
from tierfs.metadata.policies import Effective
from tierfs.metadata.records import ChunkRecord, SegmentRecord
from tierfs.metadata.tables import DIRECTORIES, POLICIES, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.policy import LIFETIME_KEYS, OFF
from tierfs.segments import positions, streams
from tierfs.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId, Tier


def governed(txn: ReadTransaction) -> list[SegmentId]:
    """The segments for which a lifetime may be set: at or below what has one. Costs nothing where nothing has."""
    found: dict[SegmentId, None] = {}
    for _, record in txn.scan(POLICIES):
        if any(record.settings.get(key, OFF) != OFF for key in LIFETIME_KEYS):
            found.update(dict.fromkeys(_segment_ids(txn, record.target_id)))
    return list(found)


def _segment_ids(txn: ReadTransaction, target_id: int) -> Iterator[SegmentId]:
    """A segment's own id, or those of all segments below a directory."""
    if target_id != ROOT_DIRECTORY and txn.get(DIRECTORIES, keys.u64(target_id)) is None:
        if txn.get(SEGMENTS, keys.u64(target_id)) is not None:
            yield SegmentId(target_id)
        return
    for child in directories.entries(txn, DirectoryId(target_id)):
        if child.kind is EntryKind.SEGMENT:
            yield SegmentId(child.id)
        else:
            yield from _segment_ids(txn, child.id)


def ledger_members(txn: ReadTransaction, managed_ledger: DirectoryId, *, needs_offload: bool) -> list[Member]:
    """The ledgers of a managed ledger, oldest first; each goes as a whole, or not at all."""
    segments = (one.segment for one in positions.members(txn, managed_ledger))
    return as_members(txn, segments, needs_offload=needs_offload)


def as_members(txn: ReadTransaction, segments: Iterable[SegmentRecord], *, needs_offload: bool) -> list[Member]:
    """Some of them."""
    effective = Effective(txn)
    found: list[Member] = []
    for segment in segments:
        ended_ms = max(segment.sealed_ms, segment.modified_ms)
        goes = segment.sealed and segment.length and (_is_named_cold(txn, segment) or not needs_offload)
        found.append(
            Member(
                id=segment.id,
                policy=effective.of(segment),
                start_offset=segment.start_offset,
                length=segment.length,
                runs=(Run(segment.length, ended_ms),) if goes else (),
                sealed=segment.sealed,
                ended_ms=ended_ms,
            )
        )
    return found


def _is_named_cold(txn: ReadTransaction, segment: SegmentRecord) -> bool:
    """Whether the journal names objects for all bytes."""
    published = txn.store.journal.published_sequence
    cold = chains.chunks(txn, segment.id, Tier.COLD) if segment.cold.bytes >= segment.length else ()
    named = [chunk.lost or chains.object_of(txn, chunk).linked_sequence <= published for chunk in cold]
    return bool(named) and all(named)


def members(txn: ReadTransaction, first: SegmentRecord, *, needs_offload: bool) -> list[Member]:
    """The stream that begins with `first`; its runs are read from the database as they are asked for."""
    found = [first]
    while (following := streams.successor(txn, found[-1])) is not None:
        found.append(following)
    return [_member(txn, segment, last=segment is found[-1], needs_offload=needs_offload) for segment in found]


def _member(txn: ReadTransaction, segment: SegmentRecord, *, last: bool, needs_offload: bool) -> Member:
    return Member(
        id=segment.id,
        policy=policies.effective(txn, segment),
        start_offset=segment.start_offset,
        length=segment.length,
        runs=_runs(txn, segment, needs_offload=needs_offload),
        sealed=segment.sealed,
        ended_ms=max(segment.sealed_ms, segment.modified_ms),
        names_stream=not last and not segment.stream_name,
    )


def _runs(txn: ReadTransaction, segment: SegmentRecord, *, needs_offload: bool) -> Iterator[Run]:
    """Complete chunks from the start offset on, cold ones first; it stops at bytes that must not go yet.

    Lost extents go with the bytes behind them.
    """
    at = segment.start_offset
    while at < segment.length:
        cold = _holding(txn, segment, Tier.COLD, at)
        if cold is not None and cold.lost:
            at = cold.end_offset
            if at >= segment.length:
                yield Run(at, segment.modified_ms)
            continue
        run = _cold_run(txn, segment, cold) if cold is not None else None
        if run is None and not needs_offload:
            run = _local_run(txn, segment, at)
        if run is None:
            return
        yield run
        at = run.end_offset


def _cold_run(txn: ReadTransaction, segment: SegmentRecord, chunk: ChunkRecord) -> Run | None:
    """None while the journal does not name it."""
    holder = chains.object_of(txn, chunk)
    if holder.linked_sequence > txn.store.journal.published_sequence:
        return None
    return Run(chunk.end_offset, min(holder.written_by_ms, segment.modified_ms))


def _local_run(txn: ReadTransaction, segment: SegmentRecord, at: int) -> Run | None:
    """None for the active chunk, whose end is not known."""
    chunk = _holding(txn, segment, Tier.LOCAL, at)
    if chunk is None or (segment.active and chunk.start_offset == segment.local.last_chunk):
        return None
    return Run(chunk.end_offset, min(ended_ms(txn, segment, chunk), segment.modified_ms))


def _holding(txn: ReadTransaction, segment: SegmentRecord, tier: Tier, offset: int) -> ChunkRecord | None:
    chunk = chains.chunk_at(txn, segment.id, tier, offset)
    return chunk if chunk is not None and chunk.end_offset > offset else None
