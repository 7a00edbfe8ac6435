"""Reading the entries of ledgers in a partition: a part owns the entries whose payload begins in its stretch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from tierfs import names
from tierfs.errors import InvalidRequest
from tierfs.metadata.ledger_records import EntryRun
from tierfs.scan.extents import clip
from tierfs.scan.fetching import Fetcher
from tierfs.scan.planning import Part, Partition
from tierfs.scan.requests import Wanted
from tierfs.types import MIB, ByteRange

_BATCH_BYTES = 4 * MIB
"""Payload of a batch, unless one entry has more: far below what Arrow's offsets of 32 bits reach."""


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Consecutive entries of one ledger, their payloads back to back."""

    part: int
    ledger_id: int | None
    first_entry_id: int
    start_offset: int
    """Of the first payload, in the segment."""
    lengths: tuple[int, ...]
    payloads: bytes


@dataclass(frozen=True, slots=True)
class _Span:
    """Entries of one run that become one batch."""

    first_entry_id: int
    start_offset: int
    lengths: tuple[int, ...]

    @property
    def range(self) -> ByteRange:
        return ByteRange(self.start_offset, self.start_offset + sum(self.lengths))


def read_entries(fetcher: Fetcher, partition: Partition) -> Iterator[EntryBatch]:
    """The entries of a partition in batches. Raises InvalidRequest for a segment that is no ledger."""
    for number, part in enumerate(partition.parts):
        ledger_id = names.ledger_id(part.source.name.rpartition("/")[2])
        spans = list(_spans(part))
        wanted = (Wanted(number, extent) for span in spans for extent in clip(part.extents, span.range))
        pieces = fetcher.pieces(wanted)
        waiting = b""
        for span in spans:
            length_bytes = span.range.length_bytes
            while len(waiting) < length_bytes:
                waiting += bytes(next(pieces).view)
            payloads, waiting = waiting[:length_bytes], waiting[length_bytes:]
            yield EntryBatch(number, ledger_id, span.first_entry_id, span.start_offset, span.lengths, payloads)


def _spans(part: Part) -> Iterator[_Span]:
    ledger = part.source.ledger
    if ledger is None:
        raise InvalidRequest(
            f"segment {names.printable(part.source.name)} is not a ledger", remedy="read type lines or bytes"
        )
    for run in ledger.runs:
        yield from _spans_of(run, part)


def _spans_of(run: EntryRun, part: Part) -> Iterator[_Span]:
    """The owned entries of one run, a batch at a time."""
    starts = list(accumulate(run.lengths, initial=run.payload_start))
    owned = [index for index in range(len(run.lengths)) if _is_owned(run.first_entry_id + index, starts[index], part)]
    if not owned:
        return
    index, last = owned[0], owned[-1]  # entries ascend, so those between are owned, too
    while index <= last:
        end = index + 1
        while end <= last and starts[end + 1] - starts[index] <= _BATCH_BYTES:
            end += 1
        yield _Span(run.first_entry_id + index, starts[index], run.lengths[index:end])
        index = end


def _is_owned(entry_id: int, start: int, part: Part) -> bool:
    """Empty entries behind the last byte belong to the part that ends there."""
    ledger = part.source.ledger
    assert ledger is not None
    if entry_id < ledger.start_entry_id or (ledger.end_entry_id is not None and entry_id >= ledger.end_entry_id):
        return False
    owned = part.owned
    return owned.start <= start < owned.end or start == owned.end == part.pinned.end
