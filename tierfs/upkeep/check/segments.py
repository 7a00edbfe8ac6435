"""Checks segments and their chunks, read in one pass beside each other, in the order of segment ids."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Any

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.names import printable
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, EntryKind, SegmentStatus, Tier
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.message_rows import MessageRow, message, messages
from tierfs.engine.metadata.tables import CHUNKS, DIRECTORIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.chain_walk import ChainWalk, Problem
from tierfs.upkeep.check.findings import RECOVER, Finding, FindingPlace, Kind, Mend, Severity
from tierfs.upkeep.check.object_table import ObjectTable
from tierfs.upkeep.check.tree import damaged, named

_TIER_AT = tables.U64_BYTES
_NO_SEGMENT = 2**64

# A name has at most 800 bytes.
_MAX_PARTS = 800


@dataclass(slots=True)
class Totals:
    """Counts of the checked records."""

    segments: int = 0
    chunks: int = 0
    bytes: int = 0
    inodes: array[int] = field(default_factory=lambda: array("Q"))
    highest_id: int = 0
    active: set[int] = field(default_factory=set)
    """Numbers of the objects that are active chunks."""


def check_segments(
    txn: ReadTransaction, table: ObjectTable, totals: Totals, report: OnProgress = unseen
) -> Iterator[Finding]:
    """Check every segment with both chains, and count references into the table."""
    rows = _Chunks(txn)
    meter = Meter(report, total_items=txn.count(SEGMENTS.name))
    for key, record in meter.each(messages(txn, SEGMENTS), "checking records of segments"):
        segment_id = tables.read_u64(key)
        totals.highest_id = max(totals.highest_id, segment_id)
        yield from _orphans(txn, rows, segment_id, table, totals)
        if record is None or record.id != segment_id:
            yield damaged(SEGMENTS.name, key, f"segment {segment_id}")
            _count_only(rows.of(segment_id), table, totals)
            continue
        totals.segments += 1
        totals.inodes.append(record.inode)
        totals.highest_id = max(totals.highest_id, record.commit_id)
        yield from _check_segment(txn, record, rows, table, totals)
    yield from _orphans(txn, rows, _NO_SEGMENT, table, totals)


class _Chunks:
    """The rows of all chains, with the next one readable in advance."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._rows = messages(txn, CHUNKS)
        self.next: MessageRow | None = next(self._rows, None)

    def of(self, segment_id: int) -> Iterator[MessageRow]:
        """Yield the next rows, as long as they are of this segment."""
        prefix = tables.u64(segment_id)
        row = self.next
        while row is not None and row[0].startswith(prefix):
            yield row
            row = self.next = next(self._rows, None)


def _check_segment(
    txn: ReadTransaction, record: Any, rows: _Chunks, table: ObjectTable, totals: Totals
) -> Iterator[Finding]:
    deleted = record.status == SegmentStatus.DELETED
    about = _About(txn, record)
    if not deleted:
        yield from named(txn, record, EntryKind.SEGMENT)
    walks = [ChainWalk(record, tier, table) for tier in Tier]
    held: list[list[ByteRange]] = [[] for _ in Tier]
    for key, chunk in rows.of(record.id):
        totals.chunks += 1
        tier = key[_TIER_AT]
        if chunk is None or tier >= len(walks) or chunk.start_offset != tables.read_u64(key[_TIER_AT + 1 :]):
            yield damaged(CHUNKS.name, key, f"a chunk of {about.name}")
            continue
        totals.bytes += chunk.length
        for problem in walks[tier].take(chunk):
            yield about.problem(problem, Tier(tier), chunk)
        ranges.add(held[tier], ByteRange(chunk.start_offset, chunk.start_offset + chunk.length))
    for walk in walks:
        for problem in walk.finish():
            yield about.problem(problem, walk.tier)
    yield from _check_record(about, walks[Tier.LOCAL], totals)
    if not deleted and record.start_offset <= record.length:
        yield from _holes(about, ranges.union(chain.from_iterable(held)))


def _check_record(about: _About, local: ChainWalk, totals: Totals) -> Iterator[Finding]:
    """Check the fields of the segment's record."""
    record = about.record
    if record.start_offset > record.length:
        yield about.finding(Kind.SEGMENT, f"it starts at {record.start_offset}, after its end {record.length}")
    if record.status not in iter(SegmentStatus):
        yield about.finding(Kind.SEGMENT, f"its status {record.status} is unknown")
    if not record.active:
        return
    if record.status != SegmentStatus.OPEN or local.last_object is None:
        what = "it is sealed" if local.last_object is not None else "there is no local chunk"
        yield about.finding(Kind.ACTIVE, f"a chunk is marked active, but {what}", mend=Mend.CLEAR_ACTIVE)
    elif local.end != record.length:
        message_ = f"its active chunk ends at {local.end}, not at its length {record.length}"
        yield about.finding(Kind.ACTIVE, message_, mend=Mend.CLEAR_ACTIVE)
    else:
        totals.active.add(local.last_object)


def _holes(about: _About, held: list[ByteRange]) -> Iterator[Finding]:
    wanted = ByteRange(about.record.start_offset, about.record.length)
    for hole in ranges.gaps(wanted, held):
        yield Finding(
            Kind.HOLE,
            Severity.LOSS,
            about.name,
            f"no chunk contains its bytes {hole.start} to {hole.end}",
            range=hole,
            mend=Mend.REPLACE_CHUNK,
            remedy=RECOVER,
            place=FindingPlace(about.record.id),
        )


def _orphans(txn: ReadTransaction, rows: _Chunks, below: int, table: ObjectTable, totals: Totals) -> Iterator[Finding]:
    """Yield chunks of segments that do not exist, up to segment `below`."""
    while rows.next is not None and (segment_id := tables.read_u64(rows.next[0])) < below:
        count = _count_only(rows.of(segment_id), table, totals)
        yield Finding(
            Kind.CHUNK_ORPHAN,
            Severity.DAMAGE,
            f"segment {segment_id}",
            f"it does not exist, but {count} of its chunks exist",
            mend=Mend.DROP_CHUNKS,
            remedy=RECOVER,
            place=FindingPlace(segment_id),
        )


def _count_only(rows: Iterator[MessageRow], table: ObjectTable, totals: Totals) -> int:
    count = 0
    for _, chunk in rows:
        count += 1
        number = table.number(chunk.object_id) if chunk is not None else None
        if number is not None:
            table.counted[number] += 1
    totals.chunks += count
    return count


class _About:
    """A segment as findings name it; its path is looked up only for a finding."""

    def __init__(self, txn: ReadTransaction, record: Any) -> None:
        self._txn = txn
        self.record = record

    @property
    def name(self) -> str:
        return segment_name(self._txn, self.record)

    def finding(self, kind: Kind, text: str, *, mend: Mend | None = None) -> Finding:
        """Return a finding about the segment's record."""
        remedy = RECOVER if mend is None else None
        place = FindingPlace(self.record.id)
        return Finding(kind, Severity.DAMAGE, self.name, text, mend=mend, remedy=remedy, place=place)

    def problem(self, problem: Problem, tier: Tier, chunk: Any | None = None) -> Finding:
        """Return a finding about a chain, or about one chunk of it."""
        held = None if chunk is None else ByteRange(chunk.start_offset, chunk.start_offset + chunk.length)
        return Finding(
            problem.kind,
            problem.severity,
            self.name,
            f"{tier.name.lower()} chain: {problem.message}",
            range=held,
            mend=problem.mend,
            remedy=RECOVER if problem.mend is None and problem.severity is not Severity.NOTE else None,
            place=FindingPlace(self.record.id, tier, held.start if held else 0),
        )


def segment_name(txn: ReadTransaction, record: Any) -> str:
    """Return the full name of a segment's record, as far as its directories exist."""
    parts, parent = [record.name], record.parent_id
    while parent != ROOT_DIRECTORY and len(parts) < _MAX_PARTS:
        above = message(txn, DIRECTORIES, tables.u64(parent))
        if above is None:
            return printable(f"…/{'/'.join(reversed(parts))}") + f" (segment {record.id})"
        parts.append(above.name)
        parent = above.parent_id
    return printable("/".join(reversed(parts)))
