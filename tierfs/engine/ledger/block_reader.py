"""Decode entries from the blocks of a data object, in pieces of any size. Pure.

With an index, its offsets and entry ids decide, as in Pulsar's reader: headers and padding are compared, and a
difference is a deviation. Without one the headers decide. Each step consumes bytes of the object, so no input makes a
reader loop, and a length is believed only while the block has that many bytes left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.engine.ledger.blocks import (
    FIXED_BYTES,
    FRAME,
    HEADER_BYTES,
    PADDING,
    STREAMING_FIXED_BYTES,
    STREAMING_MAGIC,
    BlockHeader,
)
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations

# Entries per batch: together a hundred times the fixed cost of a batch, and as many as a row of the store holds.
_BATCH_ENTRIES = 4096

# Top bit of a length's first byte: padding, or the next block's magic word.
_NEGATIVE = 0x80


class EntryMissing(DataLoss):
    """The entries of a block end before an expected one: Pulsar drops those that fit into no block."""


class BlockEntryBatch(NamedTuple):
    """Consecutive entries of a block, each after its frame."""

    first_entry_id: int
    lengths: Sequence[int]
    offset: int
    """Offset of the first entry's frame in the data object."""
    payload: bytes | None
    """All payloads back to back; None: one entry, whose payload is next in the source."""


class LedgerEntry(NamedTuple):
    """One entry, with the offset of its payload in the data object."""

    entry_id: int
    payload: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class BlockRange:
    """One block to be read: its range and its entries."""

    offset: int
    length_bytes: int
    """Up to the next block, or to the end of the data object."""

    first_entry_id: int
    entries: int | None
    """None: all those before the padding."""

    header_bytes: int = HEADER_BYTES
    ledger_id: int | None = None
    """Set in the streaming form only."""

    may_end_early: bool = False
    """Padding before the last entry is no loss: the ledger continues in another object."""

    @property
    def end_offset(self) -> int:
        """Return the offset just past the block."""
        return self.offset + self.length_bytes


def read_entries(
    pieces: Iterable[Buffer], blocks: Iterable[BlockRange], name: str, deviations: Deviations, start_offset: int = 0
) -> Iterator[LedgerEntry]:
    """Yield the entries of the blocks that an index names, from the object's bytes from `start_offset` on.

    Raises DataLoss naming the object and the entry when one is missing. Blocks must ascend; those of an index
    whose offsets do not are read one by one.
    """
    source = DecoderSource(pieces, start_offset, name)
    for batch in read_batches(source, blocks, deviations):
        yield from entries_of(source, batch)


def read_batches(
    source: DecoderSource, blocks: Iterable[BlockRange], deviations: Deviations
) -> Iterator[BlockEntryBatch]:
    """Yield the same entries in batches, as many at once as are whole in a piece.

    A payload left in `source` may be taken from it, even in pieces, before the next batch is requested. Raises as
    `read_entries`, with EntryMissing where the entries of a block end too early.
    """
    for block in blocks:
        if block.entries is not None and block.entries <= 0:
            deviations.add(f"{source.name}: the block at {block.offset} starts with an entry after the ledger's last")
            continue
        _enter(source, block, deviations)
        yield from _batches(source, block, deviations)


def entries_of(source: DecoderSource, batch: BlockEntryBatch) -> Iterator[LedgerEntry]:
    """Yield the entries of a batch, one by one."""
    if batch.payload is None:
        offset = source.position
        yield LedgerEntry(batch.first_entry_id, source.take(batch.lengths[0]), offset)
        return
    at, offset = 0, batch.offset
    for entry_id, length in enumerate(batch.lengths, batch.first_entry_id):
        offset += FRAME.size
        yield LedgerEntry(entry_id, batch.payload[at : at + length], offset)
        at, offset = at + length, offset + length


def scan_batches(
    source: DecoderSource, object_bytes: int, deviations: Deviations
) -> Iterator[tuple[BlockHeader, BlockEntryBatch]]:
    """Yield the entries of a whole data object without its index, in batches, each with the header of its block.

    Raises as `read_batches`, and DataLoss for a block that does not begin with a header or continue its ledger.
    """
    ledger_id, expected = None, None
    while source.position < object_bytes:
        block, header = _scan_header(source, object_bytes)
        if expected is not None and ledger_id == header.ledger_id and header.first_entry_id != expected:
            raise source.damage(f"the block at {block.offset} starts with entry {block.first_entry_id}, not {expected}")
        ledger_id, expected = header.ledger_id, header.first_entry_id
        for batch in _batches(source, block, deviations):
            expected = batch.first_entry_id + len(batch.lengths)
            yield header, batch
        if expected == header.first_entry_id:
            deviations.add(f"{source.name}: the block at {block.offset} has no entries")


def _scan_header(source: DecoderSource, object_bytes: int) -> tuple[BlockRange, BlockHeader]:
    """Read the header at the position of the source, and move past it."""
    offset = source.position
    fixed = source.take(FIXED_BYTES)
    if int.from_bytes(fixed[:4], "big") == STREAMING_MAGIC:
        fixed += source.take(STREAMING_FIXED_BYTES - FIXED_BYTES)
    header = BlockHeader.parse(fixed, source.name)
    if not header.header_length <= header.block_length <= object_bytes - offset:
        raise source.damage(f"the block at {offset} cannot have {header.block_length} bytes")
    source.skip_to(offset + header.header_length)
    block = BlockRange(offset, header.block_length, header.first_entry_id, None, header.header_length, header.ledger_id)
    return block, header


def _enter(source: DecoderSource, block: BlockRange, deviations: Deviations) -> None:
    """Move to the first entry of a block that an index names, past its header."""
    if block.offset < source.position:
        raise source.damage(f"the block at {block.offset} starts before the previous block ends")
    if not 0 <= block.header_bytes <= block.length_bytes:
        size = max(0, block.length_bytes)
        raise _missing(source, block.first_entry_id, f"the block at {block.offset} has {size} bytes")
    source.skip_to(block.offset)
    head = source.take(min(block.header_bytes, HEADER_BYTES))
    source.skip_to(block.offset + block.header_bytes)
    _compare_header(head, block, source, deviations)


def _compare_header(head: bytes, block: BlockRange, source: DecoderSource, deviations: Deviations) -> None:
    """Note the differences between a header and the index. Raises DataLoss for a block of another ledger."""
    try:
        header = BlockHeader.parse(head, source.name)
    except DataLoss as exc:
        deviations.add(f"{exc}; it is at {block.offset}")
        return
    if block.ledger_id is not None and header.ledger_id not in (None, block.ledger_id):
        raise source.damage(f"the block at {block.offset} is of ledger {header.ledger_id}, not {block.ledger_id}")
    if header != BlockHeader(block.length_bytes, block.first_entry_id, block.header_bytes, block.ledger_id):
        deviations.add(f"{source.name}: the header of the block at {block.offset} has {_described(header)}")
    elif any(head[FIXED_BYTES if header.ledger_id is None else STREAMING_FIXED_BYTES :]):
        deviations.add(f"{source.name}: the header of the block at {block.offset} does not end with zeros")


def _described(header: BlockHeader) -> str:
    return (
        f"magic word {header.magic:08x}, header length {header.header_length}, block length {header.block_length}, "
        f"first entry {header.first_entry_id}, ledger {header.ledger_id}"
    )


def _batches(source: DecoderSource, block: BlockRange, deviations: Deviations) -> Iterator[BlockEntryBatch]:
    """Yield the entries of one block from its first one on, then check its padding."""
    expected = block.first_entry_id
    stop = None if block.entries is None else expected + block.entries
    padding = b""
    while expected != stop:
        batch = _whole_entries(source, block, expected, stop)
        if batch.lengths:
            yield batch
            expected += len(batch.lengths)
            continue
        frame = source.take(min(FRAME.size, block.end_offset - source.position))
        if len(frame) < FRAME.size or frame[0] & _NEGATIVE:
            _check_end(frame, expected, stop, block, source)
            padding = frame
            break
        entry_id, length = _check_frame(frame, expected, block, source)
        offset = source.position
        if entry_id == expected:
            yield BlockEntryBatch(entry_id, (length,), offset - FRAME.size, None)
            expected += 1
        else:
            deviations.add(f"{source.name}: entry {entry_id} is repeated at {offset}")
        source.skip_to(offset + length)
    check_padding(source, block, PADDING, deviations, padding)


def _whole_entries(source: DecoderSource, block: BlockRange, expected: int, stop: int | None) -> BlockEntryBatch:
    """Return the next entries, as far as each is the expected one and whole in the current piece."""
    piece, start = source.piece, source.position
    end = min(len(piece), block.end_offset - start)
    most = _BATCH_ENTRIES if stop is None else min(_BATCH_ENTRIES, stop - expected)
    lengths: list[int] = []
    payloads: list[memoryview] = []
    at = 0
    while at <= end - FRAME.size and len(lengths) < most:
        length, entry_id = FRAME.unpack_from(piece, at)
        begin = at + FRAME.size
        if length < 0 or entry_id != expected or begin + length > end:
            break
        at = begin + length
        lengths.append(length)
        payloads.append(piece[begin:at])
        expected += 1
    payload = b"".join(payloads)
    source.advance(at)
    return BlockEntryBatch(expected - len(lengths), lengths, start, payload)


def _check_end(frame: bytes, expected: int, stop: int | None, block: BlockRange, source: DecoderSource) -> None:
    """Check that entries end at padding or at the end of the block, and not before the last one."""
    if stop is not None and not block.may_end_early:
        raise _missing(source, expected, f"the entries of the block at {block.offset} end before it")
    if frame and not frame[0] & _NEGATIVE:
        raise source.damage(f"entry {expected} is cut: the block at {block.offset} ends within its frame")


def _missing(source: DecoderSource, entry_id: int, why: str) -> EntryMissing:
    return EntryMissing(f"{source.name}: entry {entry_id} is missing: {why}")


def _check_frame(frame: bytes, expected: int, block: BlockRange, source: DecoderSource) -> tuple[int, int]:
    """Return entry id and length in a frame: those of the expected entry, or of a repeated one of this block."""
    length, entry_id = FRAME.unpack(frame)
    if not block.first_entry_id <= entry_id <= expected:
        raise source.damage(f"entry {entry_id} is at {source.position}, where entry {expected} is expected")
    if length > block.end_offset - source.position:
        raise source.damage(f"entry {entry_id} of {length} bytes extends past the end of the block at {block.offset}")
    return entry_id, length


def check_padding(
    source: DecoderSource, block: BlockRange, pattern: bytes, deviations: Deviations, begun: bytes = b""
) -> None:
    """Read the padding up to the end of a block; `begun` are bytes of it already taken.

    Bytes other than the pattern, and an object that ends before the block, are deviations, not errors.
    """
    phase, differs = 0, False
    for piece in chain([memoryview(begun)], source.pieces_to(block.end_offset)):
        differs = differs or bytes(piece) != _repeated(pattern, phase, len(piece))
        phase = (phase + len(piece)) % len(pattern)
    if differs:
        deviations.add(f"{source.name}: the block at {block.offset} ends with bytes other than padding")
    if source.position < block.end_offset:
        deviations.add(f"{source.name} ends at {source.position}, within the padding of the block at {block.offset}")


def _repeated(pattern: bytes, phase: int, size: int) -> bytes:
    return (pattern * (size // len(pattern) + 2))[phase : phase + size]
