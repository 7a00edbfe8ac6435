"""Where the entries of a ledger lie in its segment: rows of `entries`, committed together with the length.

A row has a run of consecutive entries; the runs of a ledger follow each other without a gap, from entry 0 at the
segment's first byte on. An entry may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tierfs.metadata import keys
from tierfs.metadata.records import MAX_RUN_ENTRIES, EntryRun
from tierfs.metadata.tables import ENTRIES
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.types import ByteRange, SegmentId


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """One entry and its payload's bytes in the segment."""

    entry_id: int
    range: ByteRange


def count(txn: ReadTransaction, segment_id: SegmentId) -> int:
    """How many entries a ledger has; the next one's id."""
    last = _last_run(txn, segment_id)
    return 0 if last is None else last.end_entry_id


def runs(txn: ReadTransaction, segment_id: SegmentId, first_entry_id: int = 0) -> Iterator[EntryRun]:
    """The runs of a ledger in order, from the one that has `first_entry_id` on."""
    prefix = keys.u64(segment_id)
    begin = txn.at_or_before(ENTRIES, keys.pair(segment_id, first_entry_id), prefix=prefix)
    start = keys.pair(segment_id, first_entry_id if begin is None else begin.first_entry_id)
    for _, run in txn.scan(ENTRIES, start, prefix=prefix):
        yield run


def placed(txn: ReadTransaction, segment_id: SegmentId, start: int, end: int) -> Iterator[PlacedEntry]:
    """Entries [start, end) in order, as far as they exist."""
    for run in runs(txn, segment_id, start) if start < end else ():
        offset = run.payload_start
        for entry_id, length in enumerate(run.lengths, run.first_entry_id):
            if entry_id >= end:
                return
            if entry_id >= start:
                yield PlacedEntry(entry_id, ByteRange(offset, offset + length))
            offset += length


def append(txn: WriteTransaction, segment_id: SegmentId, payload_start: int, lengths: Sequence[int]) -> int:
    """Add entries whose payloads follow each other from `payload_start` on; returns the first one's id."""
    last = _last_run(txn, segment_id)
    first = next_id = 0 if last is None else last.end_entry_id
    left = tuple(lengths)
    if last is not None and (room := MAX_RUN_ENTRIES - len(last.lengths)):
        _put(txn, segment_id, replace(last, lengths=last.lengths + left[:room]))
        payload_start += sum(left[:room])
        next_id += len(left[:room])
        left = left[room:]
    for at in range(0, len(left), MAX_RUN_ENTRIES):
        run = EntryRun(
            first_entry_id=next_id + at, payload_start=payload_start, lengths=left[at : at + MAX_RUN_ENTRIES]
        )
        payload_start = run.payload_end
        _put(txn, segment_id, run)
    return first


def remove(txn: WriteTransaction, segment_id: SegmentId) -> None:
    """Forget all entries of a ledger."""
    txn.delete_prefix(ENTRIES.name, keys.u64(segment_id))


def _last_run(txn: ReadTransaction, segment_id: SegmentId) -> EntryRun | None:
    return txn.at_or_before(ENTRIES, keys.pair(segment_id, keys.MAX_U64), prefix=keys.u64(segment_id))


def _put(txn: WriteTransaction, segment_id: SegmentId, run: EntryRun) -> None:
    txn.put(ENTRIES, keys.pair(segment_id, run.first_entry_id), run)
