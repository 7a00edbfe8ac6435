"""The form of PIP-17's first version: one object, its index before its blocks. Pure.

No Pulsar ever wrote it, and its magic words were never published: they are parameters. A reader gets the first
START_BYTES, which hold the length of the index, then the index, then the blocks it needs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ByteRange
from tierfs.engine.ledger.block_reader import BlockEntryBatch, BlockRange, check_padding
from tierfs.engine.ledger.blocks import BlockForm, BlockPlan, encode_blocks, plan_blocks
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import IndexEntry, block_ranges, entries_of_plans, find_entry
from tierfs.engine.ledger.index_codec import ENTRY, MAX_INDEX_BYTES, pack_entries, unpack_entries
from tierfs.engine.ledger.metadata import LedgerMetadata

PADDING = bytes.fromhex("dead1234")

# Part number of the first block: the index is part 1.
FIRST_PART_ID = 2

# Magic, length of the index, number of blocks, length of the metadata that follows.
_START = struct.Struct(">4sIII")

# Magic, length of the block, number of its entries, its first entry.
_HEADER = struct.Struct(">4sIIq")

# Length of a payload. Entry ids are counted.
_FRAME = struct.Struct(">I")

START_BYTES = _START.size


@dataclass(frozen=True, slots=True)
class MagicWords:
    """The first four bytes of the index, and of each block."""

    index: bytes
    block: bytes

    def __post_init__(self) -> None:
        if len(self.index) != 4 or len(self.block) != 4:
            raise InvalidRequest("a magic word has four bytes")


@dataclass(frozen=True, slots=True)
class SingleObjectIndex:
    """The index before the blocks; offsets count from the start of the object."""

    metadata: LedgerMetadata
    length_bytes: int
    entries: tuple[IndexEntry, ...]

    def find(self, entry_id: int) -> IndexEntry:
        """Return the block that holds an entry. Raises InvalidRequest for an entry outside the ledger."""
        return find_entry(self.entries, entry_id, self.metadata.readable_last_entry_id)

    def blocks(self, object_bytes: int) -> list[BlockRange]:
        """Return the blocks as a reader of entries needs them."""
        return block_ranges(self.entries, object_bytes, self.metadata.readable_last_entry_id, _HEADER.size)


@dataclass(frozen=True, slots=True)
class SingleObjectPlan:
    """An object to be written: its index, and the blocks that follow it."""

    index: SingleObjectIndex
    blocks: tuple[BlockPlan, ...]
    magic: MagicWords

    def encode_index(self) -> bytes:
        """Return the front of the object."""
        metadata = self.index.metadata.encode()
        start = _START.pack(self.magic.index, self.index.length_bytes, len(self.blocks), len(metadata))
        return start + metadata + pack_entries(self.index.entries)

    def encode(self, entries: Iterable[tuple[int, Buffer]]) -> Iterator[bytes | bytearray]:
        """Yield the object by parts: the index, then each block. Raises InvalidRequest as `encode_blocks`."""
        yield self.encode_index()
        yield from encode_blocks(entries, self.blocks, _form(self.magic))


def plan_object(
    metadata: LedgerMetadata, lengths: Sequence[int], max_block_bytes: int, magic: MagicWords
) -> SingleObjectPlan:
    """Plan the object of a ledger whose entries have these lengths. Raises InvalidRequest as `plan_blocks`."""
    form = _form(magic)
    front_bytes = START_BYTES + len(metadata.encode())
    blocks = plan_blocks(lengths, max_block_bytes, form)
    index_bytes = front_bytes + len(blocks) * ENTRY.size
    blocks = [replace(plan, offset=index_bytes + plan.offset) for plan in blocks]
    index = SingleObjectIndex(metadata, index_bytes, entries_of_plans(blocks, FIRST_PART_ID))
    return SingleObjectPlan(index, tuple(blocks), magic)


def index_range(start: Buffer, object_bytes: int, magic: MagicWords, name: str) -> ByteRange:
    """Return the range of the index, from the first START_BYTES of the object. Raises DataLoss naming it."""
    source = DecoderSource([start], 0, name)
    word, length, count, metadata_bytes = source.unpack(_START)
    if word != magic.index:
        raise source.damage(f"it starts with {word.hex()}, which is not the magic word of an index")
    if length > min(object_bytes, MAX_INDEX_BYTES) or START_BYTES + metadata_bytes + count * ENTRY.size != length:
        raise source.damage(f"an index of {length} bytes with {count} blocks cannot be in {object_bytes} bytes")
    return ByteRange(0, length)


def decode_index(
    data: Buffer, object_bytes: int, magic: MagicWords, name: str, deviations: Deviations
) -> SingleObjectIndex:
    """Decode the index from its bytes. Raises DataLoss naming the object.

    In the PIP's example offsets count from the payload, in its text from the start of the object: a first block at 0
    can only be of the former kind.
    """
    length = index_range(data, object_bytes, magic, name).length_bytes
    source = DecoderSource([data], 0, name)
    _, _, count, metadata_bytes = source.unpack(_START)
    metadata = LedgerMetadata.decode(source.take(metadata_bytes), name)
    entries = unpack_entries(source, count, deviations)
    if entries and entries[0].offset == 0:
        deviations.add(f"{source.name}: its offsets count from the end of the index")
        entries = tuple(replace(entry, offset=length + entry.offset) for entry in entries)
    return SingleObjectIndex(metadata, length, entries)


def read_batches(
    source: DecoderSource, blocks: Iterable[BlockRange], magic: MagicWords, deviations: Deviations
) -> Iterator[BlockEntryBatch]:
    """Yield the entries of the blocks that an index names, one by one, without payloads; see block_reader.read_batches.

    Raises DataLoss when a block differs from the index: entries carry no ids to check.
    """
    for block in blocks:
        if block.offset < source.position:
            raise source.damage(f"the block at {block.offset} starts before the previous block ends")
        source.skip_to(block.offset)
        _check_header(source.unpack(_HEADER), block, magic, source)
        for entry_id in range(block.first_entry_id, block.first_entry_id + (block.entries or 0)):
            (length,) = source.unpack(_FRAME)
            if length > block.end_offset - source.position:
                raise source.damage(f"entry {entry_id} of {length} bytes extends past the end of its block")
            offset = source.position
            yield BlockEntryBatch(entry_id, (length,), offset - _FRAME.size, None)
            source.skip_to(offset + length)
        check_padding(source, block, PADDING, deviations)


def _check_header(
    fields: tuple[bytes, int, int, int], block: BlockRange, magic: MagicWords, source: DecoderSource
) -> None:
    word, length, count, first_entry_id = fields
    if word != magic.block:
        raise source.damage(f"the block at {block.offset} starts with {word.hex()}, which is not its magic word")
    if (length, count, first_entry_id) != (block.length_bytes, block.entries, block.first_entry_id):
        raise source.damage(
            f"the block at {block.offset} has {length} bytes and {count} entries from {first_entry_id} on, its index "
            f"says {block.length_bytes}, {block.entries} and {block.first_entry_id}"
        )


def _form(magic: MagicWords) -> BlockForm:
    def header(plan: BlockPlan) -> bytes:
        return _HEADER.pack(magic.block, plan.length_bytes, plan.entries, plan.first_entry_id)

    return BlockForm(_HEADER.size, _FRAME.size, PADDING, header, lambda length, _: _FRAME.pack(length))
