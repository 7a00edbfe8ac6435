"""Indexes: the offset of each block of a data object, and the record of its ledger. Pure.

Format 1 describes one ledger; the streaming form has a section per ledger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.units import numbered
from tierfs.engine.ledger.block_reader import BlockRange
from tierfs.engine.ledger.blocks import HEADER_BYTES, BlockPlan
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.metadata import LedgerInfo, LedgerMetadata, LedgerState

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
            raise DataLoss(f"{name} has {object_bytes} of the {self.data_object_length} bytes in its index")
        if object_bytes > self.data_object_length:
            deviations.add(f"{name} has {object_bytes} bytes, its index has {self.data_object_length}")
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
        raise DataLoss(f"no block of the index contains entry {entry_id}")
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
