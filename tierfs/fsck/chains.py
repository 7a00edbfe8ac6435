"""Segments and their chunks: one pass beside each other, in the order of segment ids."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tierfs import ranges
from tierfs.fsck.chain import ChainWalk, Problem
from tierfs.fsck.findings import RECOVER, Finding, Kind, Mend, Place, Severity
from tierfs.fsck.objects import ObjectTable
from tierfs.fsck.tree import damaged, named
from tierfs.metadata import keys
from tierfs.metadata.messages import MessageRow, message, messages
from tierfs.metadata.tables import CHUNKS, DIRECTORIES, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import printable
from tierfs.types import ROOT_DIRECTORY, ByteRange, EntryKind, SegmentStatus, Tier

_TIER_AT = keys.U64_BYTES
_NO_SEGMENT = 2**64


@dataclass(slots=True)
class Totals:
    """What was looked at."""

    segments: int = 0
    chunks: int = 0
    bytes: int = 0
    inodes: array[int] = field(default_factory=lambda: array("Q"))
    highest_id: int = 0
    active: set[int] = field(default_factory=set)
    """Numbers of the objects that are active chunks."""


def check_segments(txn: ReadTransaction, table: ObjectTable, totals: Totals) -> Iterator[Finding]:
    """Every segment with both of its chains. Counts references into the table."""
    rows = _Chunks(txn)
    for key, record in messages(txn, SEGMENTS):
        segment_id = keys.read_u64(key)
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
    """The rows of all chains, with a look at the next one."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._rows = messages(txn, CHUNKS)
        self.next: MessageRow | None = next(self._rows, None)

    def of(self, segment_id: int) -> Iterator[MessageRow]:
        """The rows of a segment that come next."""
        prefix = keys.u64(segment_id)
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
        if chunk is None or tier >= len(walks) or chunk.start_offset != keys.read_u64(key[_TIER_AT + 1 :]):
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
    """What the segment's record says of itself."""
    record = about.record
    if record.start_offset > record.length:
        yield about.finding(Kind.SEGMENT, f"it starts at {record.start_offset}, beyond its end {record.length}")
    if record.status not in iter(SegmentStatus):
        yield about.finding(Kind.SEGMENT, f"its status {record.status} is unknown")
    if not record.active:
        return
    if record.status != SegmentStatus.OPEN or local.last_object is None:
        what = "it is sealed" if local.last_object is not None else "there is no local chunk"
        yield about.finding(Kind.ACTIVE, f"a chunk is said to be active, but {what}", mend=Mend.CLEAR_ACTIVE)
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
            f"no chunk holds its bytes {hole.start} to {hole.end}",
            range=hole,
            mend=Mend.REPLACE_CHUNK,
            remedy=RECOVER,
            place=Place(about.record.id),
        )


def _orphans(txn: ReadTransaction, rows: _Chunks, below: int, table: ObjectTable, totals: Totals) -> Iterator[Finding]:
    """Chunks of segments that are not there, up to segment `below`."""
    while rows.next is not None and (segment_id := keys.read_u64(rows.next[0])) < below:
        count = _count_only(rows.of(segment_id), table, totals)
        yield Finding(
            Kind.CHUNK_ORPHAN,
            Severity.DAMAGE,
            f"segment {segment_id}",
            f"it is not there, but {count} chunks of it are",
            mend=Mend.DROP_CHUNKS,
            remedy=RECOVER,
            place=Place(segment_id),
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
    """A segment as findings name it. Its path is only looked up for one."""

    def __init__(self, txn: ReadTransaction, record: Any) -> None:
        self._txn = txn
        self.record = record

    @property
    def name(self) -> str:
        return segment_name(self._txn, self.record)

    def finding(self, kind: Kind, text: str, *, mend: Mend | None = None) -> Finding:
        """What is wrong with the segment's record."""
        remedy = RECOVER if mend is None else None
        place = Place(self.record.id)
        return Finding(kind, Severity.DAMAGE, self.name, text, mend=mend, remedy=remedy, place=place)

    def problem(self, problem: Problem, tier: Tier, chunk: Any | None = None) -> Finding:
        """What is wrong with a chain, or one chunk of it."""
        span = None if chunk is None else ByteRange(chunk.start_offset, chunk.start_offset + chunk.length)
        return Finding(
            problem.kind,
            problem.severity,
            self.name,
            f"{tier.name.lower()} chain: {problem.message}",
            range=span,
            mend=problem.mend,
            remedy=RECOVER if problem.mend is None and problem.severity is not Severity.NOTE else None,
            place=Place(self.record.id, tier, span.start if span else 0),
        )


def segment_name(txn: ReadTransaction, record: Any) -> str:
    """The full name of a segment's record, as far as its directories are there."""
    parts, parent = [record.name], record.parent_id
    while parent != ROOT_DIRECTORY and len(parts) < _MAX_PARTS:
        above = message(txn, DIRECTORIES, keys.u64(parent))
        if above is None:
            return printable(f"…/{'/'.join(reversed(parts))}") + f" (segment {record.id})"
        parts.append(above.name)
        parent = above.parent_id
    return printable("/".join(reversed(parts)))


_MAX_PARTS = 800
"""A name has at most 800 bytes."""
