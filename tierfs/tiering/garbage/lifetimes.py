"""Retention as a pure function of a stream's members and the time (design §7), and the members of a store.

The function reads no clock and no database; the runs of a member are consumed only as far as they expire. `governed`,
`members` and `ledger_members` read from the database the segments that a policy may end, or whose bytes it may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import LIFETIME_KEYS, OFF, Policy, format
from tierfs.base.options.precedence import Policies
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId, Tier
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata.chunk_times import ended_ms
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.tables import DIRECTORIES, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import positions, streams


@dataclass(frozen=True, slots=True)
class MemberRun:
    """Bytes that expire together: up to the end of a complete chunk."""

    end_offset: int
    written_by_ms: int
    """Time of its last append, or later."""


@dataclass(frozen=True, slots=True)
class Member:
    """One segment of a stream, or a segment that is its own."""

    id: SegmentId
    policy: Policy
    start_offset: int
    length: int
    runs: Iterable[MemberRun]
    """The bytes that may go, from the start offset on; they end where something has to stay, whatever its age."""
    sealed: bool = False
    ended_ms: int = 0
    """The last append to a sealed one or its sealing, whichever was later."""
    names_stream: bool = False
    """Whether appends to its name continue in a successor."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """A segment loses its head, or goes."""

    segment_id: SegmentId
    before_offset: int
    """First byte that stays."""
    bytes: int
    removes: bool = False
    """Nothing is left of it, its name included."""


def expired(members: Sequence[Member], now_ms: int) -> Iterator[Expiry]:
    """Yield what goes now of a stream, whose members are in order, oldest first.

    Bytes go from the stream's head on, run by run: those older than `retention_age`, and those that leave
    `retention_bytes` after them, of all members together. A younger member stays as long as a byte before it does. An
    open segment is never removed, nor is the one that has the stream's name.
    """
    left_bytes = sum(member.length - member.start_offset for member in members)
    for member in members:
        cut = member.start_offset
        for run in member.runs:
            size = run.end_offset - cut
            if not (_is_old(member.policy, run.written_by_ms, now_ms) or _is_surplus(member.policy, left_bytes - size)):
                break
            left_bytes -= size
            cut = run.end_offset
        gone = cut == member.length and member.sealed and (cut > member.start_offset or _is_stale(member, now_ms))
        removes = gone and not member.names_stream
        if removes or cut > member.start_offset:
            yield Expiry(member.id, cut, cut - member.start_offset, removes)
        if cut < member.length:
            return


def next_expiry_ms(members: Sequence[Member]) -> int | None:
    """Return when age next takes bytes of a stream away; None when nothing that may go has an age to reach."""
    for member in members:
        age_s = member.policy.retention_age_s
        if age_s is None:
            return None
        first = next(iter(member.runs), None)
        if first is not None:
            return first.written_by_ms + age_s * 1000
        if member.start_offset < member.length or not member.sealed:
            return None  # its bytes are not cold yet, or still to come
        if not member.names_stream:
            return member.ended_ms + age_s * 1000
    return None


def _is_old(policy: Policy, written_by_ms: int, now_ms: int) -> bool:
    return policy.retention_age_s is not None and now_ms - written_by_ms >= policy.retention_age_s * 1000


def _is_surplus(policy: Policy, left_bytes: int) -> bool:
    return policy.retention_bytes is not None and left_bytes >= policy.retention_bytes


def _is_stale(empty: Member, now_ms: int) -> bool:
    """Return whether a segment without bytes has been one for as long as bytes are kept."""
    return _is_old(empty.policy, empty.ended_ms, now_ms)


@dataclass(frozen=True, slots=True)
class Overdue:
    """Bytes of one stream that are past their retention and wait for their offload."""

    bytes: int
    """At least so many."""
    first: SegmentId
    """The member in which they begin."""


def overdue(waiting: Iterable[Expiry], free: Iterable[Expiry]) -> Overdue | None:
    """Compare what goes of a stream with what would go if nothing had to wait for its offload; None if it is equal."""
    gone = {expiry.segment_id: expiry.bytes for expiry in waiting}
    left = [(expiry.segment_id, expiry.bytes - gone.get(expiry.segment_id, 0)) for expiry in free]
    first = next((segment_id for segment_id, size in left if size), None)
    return None if first is None else Overdue(sum(size for _, size in left), first)


def reason_to_wait(policies: Policies) -> str:
    """Return why bytes past their retention are not cold yet, and where the policy is set that makes them wait."""
    values = policies.values
    key = "retention_needs_offload"
    if values.offload_after_s is None:
        key = "offload_after" if values.offload_above_bytes is None else "offload_above_bytes"
    held = policies.effective(key)
    why = " and they are not offloaded yet" if key == "retention_needs_offload" else ""
    return f"{key} is {format(key, held.value)} ({held.origin}){why}"


def governed(txn: ReadTransaction) -> list[SegmentId]:
    """Return the segments for which a lifetime may be set: at or below what has one. Costs nothing without any."""
    ids: dict[SegmentId, None] = {}
    for _, record in txn.scan(POLICIES):
        if any(record.settings.get(key, OFF) != OFF for key in LIFETIME_KEYS):
            ids.update(dict.fromkeys(_segment_ids(txn, record.target_id)))
    return list(ids)


def _segment_ids(txn: ReadTransaction, target_id: int) -> Iterator[SegmentId]:
    """Yield a segment's own id, or those of all segments below a directory."""
    if target_id != ROOT_DIRECTORY and txn.get(DIRECTORIES, tables.u64(target_id)) is None:
        if txn.get(SEGMENTS, tables.u64(target_id)) is not None:
            yield SegmentId(target_id)
        return
    for child in directories.entries(txn, DirectoryId(target_id)):
        if child.kind is EntryKind.SEGMENT:
            yield SegmentId(child.id)
        else:
            yield from _segment_ids(txn, child.id)


def ledger_members(txn: ReadTransaction, managed_ledger: DirectoryId, *, waits: bool = True) -> list[Member]:
    """Return the ledgers of a managed ledger, oldest first; each goes as a whole, or not at all.

    Without `waits` as if no byte had to wait for its offload.
    """
    return as_members(txn, (member.segment for member in positions.members(txn, managed_ledger)), waits=waits)


def as_members(txn: ReadTransaction, segments: Iterable[SegmentRecord], *, waits: bool = True) -> list[Member]:
    """Return some of them as members."""
    cache = PolicyCache()
    result: list[Member] = []
    for segment in segments:
        policy = cache.of(txn, segment).values
        needs_offload = waits and policy.retention_needs_offload
        ended_ms = max(segment.sealed_ms, segment.modified_ms)
        goes = segment.sealed and segment.length and (_is_named_cold(txn, segment) or not needs_offload)
        result.append(
            Member(
                id=segment.id,
                policy=policy,
                start_offset=segment.start_offset,
                length=segment.length,
                runs=(MemberRun(segment.length, ended_ms),) if goes else (),
                sealed=segment.sealed,
                ended_ms=ended_ms,
            )
        )
    return result


def _is_named_cold(txn: ReadTransaction, segment: SegmentRecord) -> bool:
    """Return whether the journal names objects for all bytes."""
    published = txn.store.journal.published_sequence
    cold = chains.chunks(txn, segment.id, Tier.COLD) if segment.cold.bytes >= segment.length else ()
    named = [chunk.lost or chains.object_of(txn, chunk).linked_sequence <= published for chunk in cold]
    return bool(named) and all(named)


def members(txn: ReadTransaction, first: SegmentRecord, *, waits: bool = True) -> list[Member]:
    """Return the stream that begins with `first`; its runs are read from the database as they are consumed.

    Without `waits` as if no byte had to wait for its offload.
    """
    segments = [first]
    while (following := streams.successor(txn, segments[-1])) is not None:
        segments.append(following)
    return [_member(txn, segment, last=segment is segments[-1], waits=waits) for segment in segments]


def _member(txn: ReadTransaction, segment: SegmentRecord, *, last: bool, waits: bool) -> Member:
    policy = policies.effective(txn, segment)
    return Member(
        id=segment.id,
        policy=policy,
        start_offset=segment.start_offset,
        length=segment.length,
        runs=_runs(txn, segment, needs_offload=waits and policy.retention_needs_offload),
        sealed=segment.sealed,
        ended_ms=max(segment.sealed_ms, segment.modified_ms),
        names_stream=not last and not segment.stream_name,
    )


def _runs(txn: ReadTransaction, segment: SegmentRecord, *, needs_offload: bool) -> Iterator[MemberRun]:
    """Yield complete chunks from the start offset on, cold ones first, up to bytes that must not go yet.

    Lost extents go with the bytes after them.
    """
    at = segment.start_offset
    while at < segment.length:
        cold = _holding(txn, segment, Tier.COLD, at)
        if cold is not None and cold.lost:
            at = cold.end_offset
            if at >= segment.length:
                yield MemberRun(at, segment.modified_ms)
            continue
        run = _cold_run(txn, segment, cold) if cold is not None else None
        if run is None and not needs_offload:
            run = _local_run(txn, segment, at)
        if run is None:
            return
        yield run
        at = run.end_offset


def _cold_run(txn: ReadTransaction, segment: SegmentRecord, chunk: ChunkRecord) -> MemberRun | None:
    """Return the run of a cold chunk; None while the journal does not name it."""
    record = chains.object_of(txn, chunk)
    if record.linked_sequence > txn.store.journal.published_sequence:
        return None
    return MemberRun(chunk.end_offset, min(record.written_by_ms, segment.modified_ms))


def _local_run(txn: ReadTransaction, segment: SegmentRecord, at: int) -> MemberRun | None:
    """Return the run of a local chunk; None for the active one, whose end is not known."""
    chunk = _holding(txn, segment, Tier.LOCAL, at)
    if chunk is None or (segment.active and chunk.start_offset == segment.local.last_chunk):
        return None
    return MemberRun(chunk.end_offset, ended_ms(txn, segment, chunk.range))


def _holding(txn: ReadTransaction, segment: SegmentRecord, tier: Tier, offset: int) -> ChunkRecord | None:
    chunk = chains.chunk_at(txn, segment.id, tier, offset)
    return chunk if chunk is not None and chunk.end_offset > offset else None
