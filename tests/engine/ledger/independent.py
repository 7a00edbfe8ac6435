"""A second decoder of offloaded ledgers, which shares nothing with tierfs.engine.ledger but the published formats.

It is short and trusts its input: asserts end it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PADDING = b"\xfe\xdc\xde\xad"


@dataclass(frozen=True)
class Block:
    """A block, its entries by id, and its padding."""

    offset: int
    first_entry_id: int
    entries: dict[int, bytes]
    padding: bytes


@dataclass(frozen=True)
class Index:
    """An index object; metadata by field number."""

    data_object_length: int
    metadata: dict[int, list[int | bytes]]
    rows: list[tuple[int, int, int]]


def decode_index(data: bytes) -> Index:
    magic, length, data_object_length, header_length, count, metadata_length = struct.unpack(">IIQQII", data[:32])
    assert (magic, length, header_length) == (0xDE47DE47, len(data), 128)
    assert length == 32 + metadata_length + 20 * count
    rows = [struct.unpack(">qiq", data[at : at + 20]) for at in range(32 + metadata_length, length, 20)]
    return Index(data_object_length, fields(data[32 : 32 + metadata_length]), rows)


def decode_blocks(data: bytes) -> list[Block]:
    """All blocks of a data object, found by their own lengths."""
    blocks, at = [], 0
    while at < len(data):
        length, block = decode_block(data[at:], at)
        blocks.append(block)
        at += length
    assert at == len(data)
    return blocks


def decode_block(data: bytes, offset: int = 0) -> tuple[int, Block]:
    magic, header_length, length, first = struct.unpack(">IQQQ", data[:28])
    assert (magic, header_length, data[28:128]) == (0xFBDBABCB, 128, bytes(100))
    at, entries = 128, {}
    while at < length and data[at] < 0x80:
        size, entry_id = struct.unpack(">IQ", data[at : at + 12])
        assert entry_id == first + len(entries)
        assert at + 12 + size <= length
        entries[entry_id] = data[at + 12 : at + 12 + size]
        at += 12 + size
    return length, Block(offset, first, entries, data[at:length])


def decode_ledger(index: bytes, data: bytes) -> list[bytes]:
    """Return the payloads of a ledger, after comparing all that its two objects record of each other."""
    described, blocks = decode_index(index), decode_blocks(data)
    assert described.data_object_length == len(data)
    assert described.rows == [(block.first_entry_id, part, block.offset) for part, block in enumerate(blocks, 1)]
    for block in blocks:
        assert block.padding == (PADDING * (len(block.padding) // 4 + 1))[: len(block.padding)]
    payloads = [payload for block in blocks for payload in block.entries.values()]
    assert [entry_id for block in blocks for entry_id in block.entries] == list(range(len(payloads)))
    assert described.metadata[3] == [sum(map(len, payloads))]
    assert described.metadata[4] == [len(payloads) - 1]
    return payloads


def decode_single_object(data: bytes, index_magic: bytes, block_magic: bytes) -> list[bytes]:
    """The payloads of the first PIP's single object."""
    length, count, metadata_length = struct.unpack(">III", data[4:16])
    assert data[:4] == index_magic
    assert length == 16 + metadata_length + 20 * count
    payloads, end = [], length
    for row in range(count):
        at = 16 + metadata_length + 20 * row
        first, part, offset = struct.unpack(">qiq", data[at : at + 20])
        assert (first, part, offset) == (len(payloads), row + 2, end)
        block_length, entries, first_in_block = struct.unpack(">IIQ", data[offset + 4 : offset + 20])
        assert (data[offset : offset + 4], first_in_block) == (block_magic, first)
        at, end = offset + 20, offset + block_length
        for _ in range(entries):
            (size,) = struct.unpack(">I", data[at : at + 4])
            payloads.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        assert data[at:end] == (b"\xde\xad\x12\x34" * ((end - at) // 4 + 1))[: end - at]
    assert end == len(data)
    return payloads


def fields(data: bytes) -> dict[int, list[int | bytes]]:
    """A protobuf message: the values of each field, varints and bytes only."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        else:
            assert key & 7 == 0
            value -= (value >> 63) << 64
        found.setdefault(key >> 3, []).append(value)
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at
