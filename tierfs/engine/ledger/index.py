"""Indexes: the offset of each block of a data object, and the record of its ledger; their encoding. Pure.

Format 1 describes one ledger; the streaming form has a section per ledger. The first four bytes tell them apart.
Counts and lengths are checked against the available bytes before anything is allocated.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.units import numbered
from tierfs.engine.ledger.block_reader import BlockRange, DecoderSource
from tierfs.engine.ledger.blocks import HEADER_BYTES, BlockPlan, Deviations
from tierfs.engine.ledger.metadata import LedgerInfo, LedgerMetadata, LedgerState, ProtobufRecord

# The multipart number of a data object's first block.
FIRST_PART_ID = 1


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One block: its first entry, its part of the upload, and the offset of its header."""

    first_entry_id: int
    part_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """The index object of format 1."""

    metadata: LedgerMetadata
    data_object_length: int
    entries: tuple[IndexEntry, ...]
    data_header_length: int = HEADER_BYTES

    @classmethod
    def of_plans(cls, metadata: LedgerMetadata, plans: Sequence[BlockPlan]) -> LedgerIndex:
        """Return the index of a data object that is written by a plan."""
        return cls(metadata, sum(plan.length_bytes for plan in plans), entries_of_plans(plans, FIRST_PART_ID))

    def find(self, entry_id: int) -> IndexEntry:
        """Return the block that holds an entry. Raises InvalidRequest for an entry outside the ledger."""
        return find_entry(self.entries, entry_id, self.metadata.readable_last_entry_id)

    def data_offset(self, entry: IndexEntry) -> int:
        """Return the offset of the first entry of a block, after its header."""
        return entry.offset + self.data_header_length

    def blocks(self) -> list[BlockRange]:
        """Return the blocks as a reader of entries needs them."""
        last = self.metadata.readable_last_entry_id
        return block_ranges(self.entries, self.data_object_length, last, self.data_header_length)

    def check(self, object_bytes: int, name: str, deviations: Deviations) -> None:
        """Compare with the size of the data object. Raises DataLoss naming it when it cannot hold all entries."""
        name, last = printable(name), self.metadata.readable_last_entry_id
        first = self.entries[0].first_entry_id if self.entries else last + 1
        if first > 0 and last >= 0:
            raise DataLoss(f"{name}: {numbered('entry', 0, min(first, last + 1), 'are')} in no block of the index")
        if object_bytes < self.data_object_length:
            raise DataLoss(f"{name} has {object_bytes} bytes of the {self.data_object_length} that its index names")
        if object_bytes > self.data_object_length:
            deviations.add(f"{name} has {object_bytes} bytes, its index names {self.data_object_length}")
        if self.metadata.state is not LedgerState.CLOSED:
            deviations.add(f"{name}: its ledger was offloaded while it was {self.metadata.state.name}")


@dataclass(frozen=True, slots=True)
class LedgerSection:
    """One ledger in an index of the streaming form, or the part of it in this data object."""

    ledger_id: int
    info: LedgerInfo
    entries: tuple[IndexEntry, ...]

    def find(self, entry_id: int) -> IndexEntry:
        """Return the block that holds an entry. Raises InvalidRequest for an entry outside the ledger."""
        return find_entry(self.entries, entry_id, self.info.last_entry_id)


@dataclass(frozen=True, slots=True)
class StreamingIndex:
    """The index object of the streaming form: several ledgers in one data object."""

    data_object_length: int
    data_header_length: int
    sections: tuple[LedgerSection, ...]

    def section(self, ledger_id: int) -> LedgerSection:
        """Return the section of one ledger. Raises InvalidRequest when the data object has none of it."""
        for section in self.sections:
            if section.ledger_id == ledger_id:
                return section
        raise InvalidRequest(f"ledger {ledger_id} is not in this index")

    def sizes(self) -> dict[int, int]:
        """Return the bytes of the blocks of each ledger, by its id."""
        edges = _edges((entry for section in self.sections for entry in section.entries), self.data_object_length)
        blocks = {
            section.ledger_id: [_block(entry, edges, 0, 0) for entry in section.entries] for section in self.sections
        }
        return {
            ledger_id: sum(max(0, block.length_bytes) for block in ranges_of_ledger)
            for ledger_id, ranges_of_ledger in blocks.items()
        }

    def blocks(self, ledger_id: int) -> list[BlockRange]:
        """Return the blocks of one ledger. The last may end early: the ledger may continue in another object."""
        section = self.section(ledger_id)
        everything = [entry for section in self.sections for entry in section.entries]
        edges = _edges(everything, self.data_object_length)
        blocks = [
            _block(entry, edges, count, self.data_header_length, ledger_id)
            for entry, count in _counts(section.entries, section.info.last_entry_id)
        ]
        return [*blocks[:-1], *(replace(block, may_end_early=True) for block in blocks[-1:])]


def entries_of_plans(plans: Iterable[BlockPlan], first_part_id: int) -> tuple[IndexEntry, ...]:
    """Return the index rows of planned blocks, each a part of the upload."""
    return tuple(IndexEntry(plan.first_entry_id, part, plan.offset) for part, plan in enumerate(plans, first_part_id))


def find_entry(entries: Sequence[IndexEntry], entry_id: int, last_entry_id: int) -> IndexEntry:
    """Return the block of an entry: the last that begins at or before it.

    Raises InvalidRequest beyond the last entry, DataLoss when no block holds it.
    """
    if not 0 <= entry_id <= last_entry_id:
        raise InvalidRequest(f"entry {entry_id} is not in the ledger, whose last entry is {last_entry_id}")
    at = bisect_right(entries, entry_id, key=lambda entry: entry.first_entry_id)
    if not at:
        raise DataLoss(f"no block of the index holds entry {entry_id}")
    return entries[at - 1]


def block_ranges(
    entries: Sequence[IndexEntry], end_offset: int, last_entry_id: int, header_bytes: int
) -> list[BlockRange]:
    """Return the blocks of a ledger that has an object to itself."""
    edges = _edges(entries, end_offset)
    return [_block(entry, edges, count, header_bytes) for entry, count in _counts(entries, last_entry_id)]


def _counts(entries: Sequence[IndexEntry], last_entry_id: int) -> Iterator[tuple[IndexEntry, int]]:
    """Yield each block with the number of its entries, up to the next one's first or the ledger's last."""
    stops = [*(entry.first_entry_id for entry in entries[1:]), last_entry_id + 1]
    for entry, stop in zip(entries, stops, strict=False):
        yield entry, min(stop, last_entry_id + 1) - entry.first_entry_id


def _edges(entries: Iterable[IndexEntry], data_object_length: int) -> list[int]:
    """Return the offsets at which blocks begin, and the end of the last one."""
    return [*sorted({entry.offset for entry in entries if entry.offset < data_object_length}), data_object_length]


def _block(
    entry: IndexEntry, edges: Sequence[int], count: int, header_bytes: int, ledger_id: int | None = None
) -> BlockRange:
    """Return a block up to the next offset; one at or after the end of the data object has no bytes."""
    at = bisect_right(edges, entry.offset)
    end = edges[at] if at < len(edges) else entry.offset
    return BlockRange(entry.offset, end - entry.offset, entry.first_entry_id, count, header_bytes, ledger_id)


MAGIC = 0xDE47DE47
STREAMING_MAGIC = 0x3D1FB0BC

# 200,000 blocks, a guess: S3 takes 10,000 parts per object. A larger index is refused, at best before it is read.
MAX_INDEX_BYTES = 4 * 1024 * 1024

# Magic, length of the index, length of the data object, length of a block header.
_START = struct.Struct(">IIqq")

# Number of blocks, length of the metadata that follows.
_COUNTS = struct.Struct(">ii")

# Before the counts in the streaming form: the section's ledger id.
_LEDGER = struct.Struct(">q")

# First entry id, part id, offset.
ENTRY = struct.Struct(">qiq")

R = TypeVar("R", bound=ProtobufRecord)


def encode_index(index: LedgerIndex) -> bytes:
    """Encode the index object of format 1. Raises InvalidRequest for unordered blocks and numbers that do not fit."""
    for before, entry in pairwise(index.entries):
        if entry.first_entry_id <= before.first_entry_id:
            raise InvalidRequest(
                f"the block of entry {entry.first_entry_id} follows that of entry {before.first_entry_id}"
            )
    metadata = index.metadata.encode()
    length = _START.size + _COUNTS.size + len(metadata) + len(index.entries) * ENTRY.size
    try:
        start = _START.pack(MAGIC, length, index.data_object_length, index.data_header_length)
        return start + _COUNTS.pack(len(index.entries), len(metadata)) + metadata + pack_entries(index.entries)
    except struct.error as exc:
        raise InvalidRequest(f"an index of {len(index.entries)} blocks cannot be encoded: {exc}") from exc


def decode_index(data: Buffer, name: str, deviations: Deviations) -> LedgerIndex | StreamingIndex:
    """Decode an index from the whole of its object. Raises DataLoss naming the object."""
    source = DecoderSource([data], 0, name)
    if len(data) > MAX_INDEX_BYTES:
        raise source.damage(f"an index of {len(data)} bytes is more than {MAX_INDEX_BYTES}")
    magic, length, data_object_length, data_header_length = source.unpack(_START)
    if magic not in (MAGIC, STREAMING_MAGIC):
        raise source.damage(f"it begins with {magic:08x}, which is not the magic word of an index")
    if length != len(data):
        deviations.add(f"{source.name}: the index has {len(data)} bytes, but says {length}")
    if magic == STREAMING_MAGIC:
        sections = _sections(source, len(data), deviations)
        return StreamingIndex(data_object_length, data_header_length, sections)
    metadata, entries = _section(source, len(data), LedgerMetadata, deviations)
    return LedgerIndex(metadata, data_object_length, entries, data_header_length)


def _sections(source: DecoderSource, index_bytes: int, deviations: Deviations) -> tuple[LedgerSection, ...]:
    """Decode all sections up to the end; of two for one ledger the later one counts, as in Pulsar's reader."""
    by_ledger: dict[int, LedgerSection] = {}
    while source.position < index_bytes:
        (ledger_id,) = source.unpack(_LEDGER)
        info, entries = _section(source, index_bytes, LedgerInfo, deviations)
        if ledger_id in by_ledger or ledger_id != info.ledger_id:
            deviations.add(f"{source.name}: a section of ledger {ledger_id} repeats it or describes {info.ledger_id}")
        by_ledger[ledger_id] = LedgerSection(ledger_id, info, entries)
    return tuple(by_ledger.values())


def _section(
    source: DecoderSource, index_bytes: int, kind: type[R], deviations: Deviations
) -> tuple[R, tuple[IndexEntry, ...]]:
    count, metadata_bytes = source.unpack(_COUNTS)
    remaining = index_bytes - source.position
    if count < 0 or metadata_bytes < 0 or metadata_bytes + count * ENTRY.size > remaining:
        raise source.damage(
            f"{count} blocks and {metadata_bytes} bytes of metadata are not in the {remaining} bytes left"
        )
    record = kind.decode(source.take(metadata_bytes), source.name)
    return record, unpack_entries(source, count, deviations)


def unpack_entries(source: DecoderSource, count: int, deviations: Deviations) -> tuple[IndexEntry, ...]:
    """Decode the rows of blocks, ordered by entry; of two for one entry the first counts, as in Pulsar."""
    rows = [IndexEntry(*row) for row in ENTRY.iter_unpack(source.take(count * ENTRY.size))]
    first_of: dict[int, IndexEntry] = {}
    for row in rows:
        first_of.setdefault(row.first_entry_id, row)
    entries = tuple(first_of[entry_id] for entry_id in sorted(first_of))
    if list(entries) != rows:
        deviations.add(f"{source.name}: its blocks are not in the order of their entries, or are repeated")
    return entries


def pack_entries(entries: Iterable[IndexEntry]) -> bytes:
    """Encode the rows of blocks. Raises struct.error for numbers that do not fit."""
    return b"".join(ENTRY.pack(entry.first_entry_id, entry.part_id, entry.offset) for entry in entries)
