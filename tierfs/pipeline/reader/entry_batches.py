"""Reads ledger entries in batches: a part owns the entries whose payload begins in its stretch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB, ByteRange
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.pipeline.reader.extents import clip
from tierfs.pipeline.reader.fetching import ScanFetcher, WantedRequest
from tierfs.pipeline.reader.planning import Part, Partition

# Payload of a batch, unless one entry has more: far below what Arrow's offsets of 32 bits reach.
_BATCH_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Consecutive entries of one ledger, their payloads back to back."""

    part: int
    ledger_id: int | None
    first_entry_id: int
    start_offset: int
    """Offset of the first payload in the segment."""
    lengths: tuple[int, ...]
    payloads: bytes
    """All of them, or none if they were not read."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Entries of one run that become one batch."""

    first_entry_id: int
    start_offset: int
    lengths: tuple[int, ...]

    @property
    def range(self) -> ByteRange:
        return ByteRange(self.start_offset, self.start_offset + sum(self.lengths))


def read_entries(fetcher: ScanFetcher, partition: Partition, *, with_payloads: bool) -> Iterator[EntryBatch]:
    """Yield the entries of a partition in batches. Raises InvalidRequest for a segment that is not a ledger.

    Their places are known from the metadata: without payloads, nothing is read.
    """
    for number, part in enumerate(partition.parts):
        ledger_id = names.ledger_id(part.source.name.rpartition("/")[2])
        batches = list(_batches(part))
        read = batches if with_payloads else []
        wanted = (WantedRequest(number, extent) for batch in read for extent in clip(part.extents, batch.range))
        pieces = fetcher.pieces(wanted)
        waiting = b""
        for batch in batches:
            length_bytes = batch.range.length_bytes if with_payloads else 0
            while len(waiting) < length_bytes:
                waiting += bytes(next(pieces).view)
            payloads, waiting = waiting[:length_bytes], waiting[length_bytes:]
            yield EntryBatch(number, ledger_id, batch.first_entry_id, batch.start_offset, batch.lengths, payloads)


def _batches(part: Part) -> Iterator[_Batch]:
    ledger = part.source.ledger
    if ledger is None:
        raise InvalidRequest(
            f"segment {names.printable(part.source.name)} is not a ledger", remedy="read type lines or bytes"
        )
    for run in ledger.runs:
        yield from _batches_of(run, part)


def _batches_of(run: EntryRun, part: Part) -> Iterator[_Batch]:
    """Yield the owned entries of one run, a batch at a time."""
    starts = list(accumulate(run.lengths, initial=run.payload_start))
    owned = [index for index in range(len(run.lengths)) if _is_owned(run.first_entry_id + index, starts[index], part)]
    if not owned:
        return
    index, last = owned[0], owned[-1]  # entries ascend, so those between are owned, too
    while index <= last:
        end = index + 1
        while end <= last and starts[end + 1] - starts[index] <= _BATCH_BYTES:
            end += 1
        yield _Batch(run.first_entry_id + index, starts[index], run.lengths[index:end])
        index = end


def _is_owned(entry_id: int, start: int, part: Part) -> bool:
    """Return whether the part owns an entry; empty entries after the last byte belong to the part that ends there."""
    ledger = part.source.ledger
    assert ledger is not None
    if entry_id < ledger.start_entry_id or (ledger.end_entry_id is not None and entry_id >= ledger.end_entry_id):
        return False
    owned = part.owned
    return owned.start <= start < owned.end or start == owned.end == part.pinned.end
