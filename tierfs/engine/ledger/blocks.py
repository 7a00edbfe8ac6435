"""Blocks of a data object: their headers, their sizes, and an encoder that follows a plan. Pure.

A block is a header of 128 bytes, whole entries (length, entry id, payload) and end padding. Sizes are planned from the
lengths of the entries alone, before the first byte is written: an upload must know the size of each part, and an entry
that fits into no block must be refused before anything is uploaded.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MAX_LEDGER_BLOCK_BYTES

# Magic of format 1; negative as the length of an entry, so that a reader of entries stops at it.
MAGIC = 0xFBDBABCB

# Magic of the streaming form: positive, so only offsets and block lengths show its block edges.
STREAMING_MAGIC = 0x26A66D32

# Size of every header that Pulsar writes; most of it is zeros.
HEADER_BYTES = 128

# Repeated from the end of the last entry to the end of the block, where it is cut.
PADDING = bytes.fromhex("fedcdead")

# Frame before each payload: its length, the entry's id.
FRAME = struct.Struct(">iq")

# Magic, header length, block length, first entry id.
_FIXED = struct.Struct(">Iqqq")

# The ledger id that follows in the streaming form.
_LEDGER = struct.Struct(">q")

FIXED_BYTES = _FIXED.size
STREAMING_FIXED_BYTES = _FIXED.size + _LEDGER.size

# Repetitions of a padding pattern that are made at once: blocks are large, and memory is bounded.
_PADDED_AT_ONCE = 16384


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The header of a block; only the streaming form has the ledger id."""

    block_length: int
    first_entry_id: int
    header_length: int = HEADER_BYTES
    ledger_id: int | None = None

    @property
    def magic(self) -> int:
        """Return the magic word of its form."""
        return MAGIC if self.ledger_id is None else STREAMING_MAGIC

    def encode(self) -> bytes:
        """Return the header with its zeros. Raises InvalidRequest for numbers that do not fit."""
        try:
            fixed = _FIXED.pack(self.magic, self.header_length, self.block_length, self.first_entry_id)
            return (fixed + (b"" if self.ledger_id is None else _LEDGER.pack(self.ledger_id))).ljust(
                HEADER_BYTES, b"\0"
            )
        except struct.error as exc:
            raise InvalidRequest(f"a block of {self.block_length} bytes cannot be encoded: {exc}") from exc

    @classmethod
    def decode(cls, data: Buffer, name: str) -> BlockHeader:
        """Decode the header in `data`, which must hold all of it. Raises DataLoss naming the object."""
        header = cls.parse(data, name)
        if len(data) < header.header_length:
            raise DataLoss(f"{printable(name)} ends within a block header of {header.header_length} bytes")
        return header

    @classmethod
    def parse(cls, data: Buffer, name: str) -> BlockHeader:
        """Decode the fields before the zeros. Raises DataLoss naming the object."""
        if len(data) < FIXED_BYTES:
            raise DataLoss(f"{printable(name)} ends within a block header")
        magic, header_length, block_length, first_entry_id = _FIXED.unpack_from(data)
        if magic not in (MAGIC, STREAMING_MAGIC):
            raise DataLoss(f"{printable(name)}: a block starts with {magic:08x}, which is not its magic word")
        fixed_bytes = FIXED_BYTES if magic == MAGIC else STREAMING_FIXED_BYTES
        if header_length < fixed_bytes or len(data) < fixed_bytes:
            raise DataLoss(f"{printable(name)}: a block header of {min(header_length, len(data))} bytes is too short")
        ledger_id = None if magic == MAGIC else _LEDGER.unpack_from(data, FIXED_BYTES)[0]
        return cls(block_length, first_entry_id, header_length, ledger_id)


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """One block to be written: consecutive entries, and its offset in the object."""

    first_entry_id: int
    entries: int
    payload_bytes: int
    length_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The sizes and encodings that differ between forms of blocks."""

    header_bytes: int
    frame_bytes: int
    padding: bytes
    header: Callable[[BlockPlan], bytes]
    frame: Callable[[int, int], bytes]
    """Returns the bytes before a payload, from its length and the entry's id."""

    def used_bytes(self, entries: int, payload_bytes: int) -> int:
        """Return the size of a block of these entries without padding."""
        return self.header_bytes + entries * self.frame_bytes + payload_bytes


def _header(plan: BlockPlan) -> bytes:
    return BlockHeader(plan.length_bytes, plan.first_entry_id).encode()


# The form that Pulsar writes today.
FORMAT_1 = BlockForm(HEADER_BYTES, FRAME.size, PADDING, _header, FRAME.pack)


def plan_blocks(
    lengths: Sequence[int], max_block_bytes: int, form: BlockForm = FORMAT_1, offset: int = 0
) -> list[BlockPlan]:
    """Plan the blocks of a ledger whose entries have these lengths; the first begins at `offset`.

    All but the last have `max_block_bytes`, the last is as long as its entries. Raises InvalidRequest for an entry
    that is too large for a block: Pulsar drops it and all after it, and reports success.
    """
    _check_lengths(lengths, max_block_bytes, form)
    ends = array("Q", accumulate((form.frame_bytes + length for length in lengths), initial=0))
    plans: list[BlockPlan] = []
    first, count = 0, len(lengths)
    while first < count:
        block_bytes = min(max_block_bytes, form.header_bytes + ends[count] - ends[first])
        end = bisect_right(ends, ends[first] + block_bytes - form.header_bytes, lo=first) - 1
        payload_bytes = ends[end] - ends[first] - form.frame_bytes * (end - first)
        plans.append(BlockPlan(first, end - first, payload_bytes, block_bytes, offset))
        first, offset = end, offset + block_bytes
    return plans


def _check_lengths(lengths: Sequence[int], max_block_bytes: int, form: BlockForm) -> None:
    if not form.used_bytes(1, 0) <= max_block_bytes <= MAX_LEDGER_BLOCK_BYTES:
        raise InvalidRequest(
            f"blocks of {max_block_bytes} bytes: a block has {form.used_bytes(1, 0)} to {MAX_LEDGER_BLOCK_BYTES} bytes"
        )
    if not lengths or (min(lengths) >= 0 and form.used_bytes(1, max(lengths)) <= max_block_bytes):
        return
    for entry_id, length in enumerate(lengths):
        if length < 0:
            raise InvalidRequest(f"entry {entry_id} has a length of {length} bytes")
        if form.used_bytes(1, length) > max_block_bytes:
            raise InvalidRequest(
                f"entry {entry_id} of {length} bytes does not fit into a block of {max_block_bytes} bytes",
                remedy=f"use blocks of at least {form.used_bytes(1, length)} bytes",
            )


def encode_blocks(
    entries: Iterable[tuple[int, Buffer]], plans: Sequence[BlockPlan], form: BlockForm = FORMAT_1
) -> Iterator[bytearray]:
    """Yield the blocks of a data object; only the entries of one are read before it is yielded.

    Raises InvalidRequest when the entries are not the planned ones, and then never yields the last block.
    """
    source = iter(entries)
    for plan in plans[:-1]:
        yield _block(source, plan, form)
    last = [_block(source, plan, form) for plan in plans[-1:]]
    extra = next(source, None)
    if extra is not None:
        raise InvalidRequest(f"entry {extra[0]} follows the last one that was planned")
    while last:
        yield last.pop()


def _block(source: Iterator[tuple[int, Buffer]], plan: BlockPlan, form: BlockForm) -> bytearray:
    block = bytearray(plan.length_bytes)
    block[: form.header_bytes] = form.header(plan)
    at = form.header_bytes
    for entry_id in range(plan.first_entry_id, plan.first_entry_id + plan.entries):
        planned_id, payload = next(source, (None, b""))
        end = at + form.frame_bytes + len(payload)
        if planned_id != entry_id or end > plan.length_bytes:
            raise InvalidRequest(f"entry {entry_id} was planned, but is {_described(planned_id, payload)}")
        block[at : at + form.frame_bytes] = form.frame(len(payload), entry_id)
        block[at + form.frame_bytes : end] = payload
        at = end
    if at != form.used_bytes(plan.entries, plan.payload_bytes):
        raise InvalidRequest(f"entries from {plan.first_entry_id} on do not have the lengths that were planned")
    _pad(block, at, form.padding)
    return block


def _described(entry_id: int | None, payload: Buffer) -> str:
    return "missing" if entry_id is None else f"entry {entry_id} of {len(payload)} bytes"


def padding(length_bytes: int) -> bytes:
    """Return the bytes that fill a block of format 1 after its last entry."""
    return (PADDING * (length_bytes // len(PADDING) + 1))[:length_bytes]


def _pad(block: bytearray, start: int, pattern: bytes) -> None:
    """Fill a block from `start` on; the pattern begins there, and is cut at the end."""
    stretch = pattern * min(_PADDED_AT_ONCE, (len(block) - start) // len(pattern) + 1)
    for at in range(start, len(block), len(stretch)):
        block[at : at + len(stretch)] = stretch[: len(block) - at]
