"""Positions of a ledger's entries in its segment: rows of `entries`, committed together with the length.

A row has a run of consecutive entries; the runs of a ledger follow each other without a gap, from entry 0 at the
segment's first byte on. An entry may be empty. A recovery and a replica write no rows for a closed ledger whose entries
are all empty: its record, of some bytes, says how many there are, and rows of as many would be writes without bound.

The journal does not carry these rows; the bucket holds a copy of them (`entries_object`).

Rows of `ledgers` hold the rest of tiering's state of a ledger. Their changes are journaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise, takewhile

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, SegmentId, SegmentKind
from tierfs.engine.metadata import changes, tables
from tierfs.engine.metadata.ledger_records import MAX_RUN_ENTRIES, EntryRun, LedgerRecord
from tierfs.engine.metadata.records import SegmentRecord, require
from tierfs.engine.metadata.tables import ENTRIES, LEDGERS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# Most entries of a ledger without a byte: any writer to the bucket can choose the number (a guess).
MOST_EMPTY_ENTRIES = 1 << 30


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """One entry and its payload's bytes in the segment."""

    entry_id: int
    range: ByteRange


@dataclass(frozen=True, slots=True)
class StoredEntries:
    """Consecutive entries that follow each other in an object, each after its frame."""

    first_entry_id: int
    entries: int
    stored_offset: int
    """Position of the first one's frame."""
    frame_bytes: int

    @property
    def end_entry_id(self) -> int:
        """Id after the last entry."""
        return self.first_entry_id + self.entries


def count(txn: ReadTransaction, segment_id: SegmentId) -> int:
    """Return the number of entries of a ledger, which is the next one's id."""
    last = last_run(txn, segment_id)
    return 0 if last is None else last.end_entry_id


def end(txn: ReadTransaction, segment_id: SegmentId) -> int:
    """Return the offset after the last entry; 0 without entries."""
    last = last_run(txn, segment_id)
    return 0 if last is None else last.payload_end


def runs(txn: ReadTransaction, segment_id: SegmentId, first_entry_id: int = 0) -> Iterator[EntryRun]:
    """Yield the runs of a ledger in order, from the one that has `first_entry_id` on."""
    prefix = tables.u64(segment_id)
    begin = txn.at_or_before(ENTRIES, tables.pair(segment_id, first_entry_id), prefix=prefix)
    start = tables.pair(segment_id, first_entry_id if begin is None else begin.first_entry_id)
    has_rows = begin is not None
    for _, run in txn.scan(ENTRIES, start, prefix=prefix):
        has_rows = True
        yield run
    if not has_rows:
        yield from _empty_runs(_empty_entries(txn, segment_id), first_entry_id)


def placed(txn: ReadTransaction, segment_id: SegmentId, start: int, end: int) -> Iterator[PlacedEntry]:
    """Yield entries [start, end) in order, as far as they exist."""
    for run in runs(txn, segment_id, start) if start < end else ():
        offset = run.payload_start
        for entry_id, length in enumerate(run.lengths, run.first_entry_id):
            if entry_id >= end:
                return
            if entry_id >= start:
                yield PlacedEntry(entry_id, ByteRange(offset, offset + length))
            offset += length


def run_holding(txn: ReadTransaction, segment_id: SegmentId, offset: int) -> EntryRun | None:
    """Return the run that holds the payload byte at `offset` of the segment; None when no run does.

    Guesses its place from the average length of entries: two or three rows are read, however large the ledger is.
    """
    last = last_run(txn, segment_id)
    if last is None or offset >= last.payload_end:
        return None
    low, low_offset = 0, 0
    high, high_offset = last.end_entry_id, last.payload_end
    while low < high:
        guess = low + (high - low) * (offset - low_offset) // (high_offset - low_offset)
        run = next(runs(txn, segment_id, min(guess, high - 1)))
        if offset < run.payload_start:
            high, high_offset = run.first_entry_id, run.payload_start
        elif offset >= run.payload_end:
            low, low_offset = run.end_entry_id, run.payload_end
        else:
            return run
    return None


def place(txn: WriteTransaction, segment_id: SegmentId, blocks: Iterable[StoredEntries]) -> None:
    """Record where entries lie in the cold object of their ledger; a run ends where a block does. Idempotent."""
    for block in blocks:
        _place(txn, segment_id, block)


def _place(txn: WriteTransaction, segment_id: SegmentId, block: StoredEntries) -> None:
    first, end, stored_offset = block.first_entry_id, block.end_entry_id, block.stored_offset
    held = list(takewhile(lambda run: run.first_entry_id < end, runs(txn, segment_id, first)))
    require(bool(held) and held[-1].end_entry_id >= end, "a ledger lacks entries", segment_id)
    for part in chain.from_iterable(_cut(run, first, end) for run in held):
        inside = part.first_entry_id >= first and part.end_entry_id <= end
        put(txn, segment_id, replace(part, stored_offset=stored_offset) if inside else part)
        if inside:
            stored_offset += part.payload_end - part.payload_start + block.frame_bytes * len(part.lengths)


def _cut(run: EntryRun, first: int, end: int) -> Iterator[EntryRun]:
    """Yield up to three parts of a run: before entry `first`, up to `end`, and after it."""
    lines = [run.first_entry_id, *(line for line in (first, end) if run.first_entry_id < line < run.end_entry_id)]
    offset = run.payload_start
    for start, stop in pairwise([*lines, run.end_entry_id]):
        lengths = run.lengths[start - run.first_entry_id : stop - run.first_entry_id]
        yield EntryRun(first_entry_id=start, payload_start=offset, lengths=lengths)
        offset += sum(lengths)


def append(txn: WriteTransaction, segment_id: SegmentId, payload_start: int, lengths: Sequence[int]) -> int:
    """Add entries whose payloads follow each other from `payload_start` on; return the first one's id."""
    last = last_run(txn, segment_id)
    first = next_id = 0 if last is None else last.end_entry_id
    remaining = tuple(lengths)
    if last is not None and (room := MAX_RUN_ENTRIES - len(last.lengths)):
        put(txn, segment_id, replace(last, lengths=last.lengths + remaining[:room]))
        payload_start += sum(remaining[:room])
        next_id += len(remaining[:room])
        remaining = remaining[room:]
    for at in range(0, len(remaining), MAX_RUN_ENTRIES):
        run = EntryRun(
            first_entry_id=next_id + at, payload_start=payload_start, lengths=remaining[at : at + MAX_RUN_ENTRIES]
        )
        payload_start = run.payload_end
        put(txn, segment_id, run)
    return first


def remove(txn: WriteTransaction, segment_id: SegmentId) -> None:
    """Forget all entries of a ledger."""
    txn.delete_prefix(ENTRIES.name, tables.u64(segment_id))


def last_run(txn: ReadTransaction, segment_id: SegmentId) -> EntryRun | None:
    """Return the run with a ledger's last entries; None without entries."""
    last = txn.at_or_before(ENTRIES, tables.pair(segment_id, tables.MAX_U64), prefix=tables.u64(segment_id))
    if last is None and (count := _empty_entries(txn, segment_id)):
        return next(_empty_runs(count, count - 1))
    return last


def _empty_entries(txn: ReadTransaction, segment_id: SegmentId) -> int:
    """Return the number of entries of a ledger without rows, by its record: 0 unless all are empty."""
    ledger: LedgerRecord | None = txn.get(LEDGERS, tables.u64(segment_id))
    return ledger.entries if ledger is not None and not ledger.bytes and ledger.entries <= MOST_EMPTY_ENTRIES else 0


def _empty_runs(count: int, first_entry_id: int) -> Iterator[EntryRun]:
    """Yield the runs of `count` empty entries, from the one that has `first_entry_id` on."""
    for first in range(first_entry_id - first_entry_id % MAX_RUN_ENTRIES, count, MAX_RUN_ENTRIES):
        yield EntryRun(first_entry_id=first, lengths=(0,) * min(MAX_RUN_ENTRIES, count - first))


def put(txn: WriteTransaction, segment_id: SegmentId, run: EntryRun) -> None:
    """Write a run as it is."""
    txn.put(ENTRIES, tables.pair(segment_id, run.first_entry_id), run)


def find(txn: ReadTransaction, segment_id: SegmentId) -> LedgerRecord:
    """Return the ledger's record; an empty one where nothing was written yet."""
    ledger: LedgerRecord | None = txn.get(LEDGERS, tables.u64(segment_id))
    return ledger or LedgerRecord(segment_id=segment_id)


def put_ledger(txn: WriteTransaction, ledger: LedgerRecord) -> int:
    """Write and journal a ledger's record; return the change's sequence."""
    return changes.put(txn, LEDGERS, ledger)


def forget(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Drop all rows of a segment that is deleted, if it is a ledger."""
    if segment.kind is SegmentKind.LEDGER:
        remove(txn, segment.id)
        txn.delete(LEDGERS.name, tables.u64(segment.id))
