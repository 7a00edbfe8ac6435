"""Entries of Pulsar assembled by hand: protobuf, CRC32C and codecs are written out, and none is tierfs's own."""

from __future__ import annotations

import struct
import zlib

Value = int | str | bytes

TEXT = b"hello world " * 10
"""Long enough that each codec refers back."""

TEXT_AS = {
    0: TEXT,
    1: bytes.fromhex("cf 68656c6c6f20776f726c6420 0c00 54 50 6f726c6420"),
    # Pulsar flushes the stream and does not end it.
    2: bytes.fromhex("789c ca48cdc9c95728cf2fca4951c8a0231b00 0000ffff"),
    3: bytes.fromhex("28b52ffd 2078 9d0000 60 68656c6c6f20776f726c6420 0100e9694902"),
    4: bytes.fromhex("78 2c 68656c6c6f20776f726c6420 fe0c00 ae0c00"),
}
"""TEXT by the number of its compression."""


def varint(number: int) -> bytes:
    number &= 2**64 - 1  # negative ones take ten bytes
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def proto(*fields: tuple[int, Value]) -> bytes:
    """A protobuf message of (field number, value)."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def metadata(*fields: tuple[int, Value]) -> bytes:
    """Return a MessageMetadata with the required fields and `fields`."""
    return proto((1, "standalone-0-1"), (2, 7), (3, 1_700_000_000_000), *fields)


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def crc32c(data: bytes) -> int:
    """Compute it bit by bit, from the definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def entry(meta: bytes, payload: bytes = b"", *, checksum: bool = True, broker: bytes | None = None) -> bytes:
    """An entry as it lies in a ledger."""
    body = sized(meta) + payload
    if checksum:
        body = struct.pack(">HI", 0x0E01, crc32c(body)) + body
    return body if broker is None else struct.pack(">H", 0x0E02) + sized(broker) + body


def in_batch(payload: bytes, *fields: tuple[int, Value]) -> bytes:
    """One message of a batch's payload."""
    return sized(proto(*fields, (3, len(payload)))) + payload


def batch(*messages: bytes, meta: tuple[tuple[int, Value], ...] = (), checksum: bool = True) -> bytes:
    """An entry with a batch that is not compressed."""
    return entry(metadata((11, len(messages)), *meta), b"".join(messages), checksum=checksum)


def zeros(compression: int, count: int) -> bytes:
    """`count` bytes of zero, compressed as far as the format allows."""
    if compression == 1:
        length = count - 1 - 5 - 19  # one literal in front, five behind, and 19 fit into the token
        return b"\x1f\0\1\0" + b"\xff" * (length // 255) + bytes([length % 255]) + b"\x50" + bytes(5)
    if compression == 2:
        return zlib.compress(bytes(count))
    if compression == 3:
        blocks = [min(2**17, count - at) for at in range(0, count, 2**17)]
        heads = [(size << 3 | 2 | (at == len(blocks) - 1)).to_bytes(3, "little") for at, size in enumerate(blocks)]
        return bytes.fromhex("28b52ffd 00 38") + b"".join(head + b"\0" for head in heads)
    tail = (count - 1) % 64
    copies = b"\xfe\1\0" * ((count - 1) // 64) + (bytes([(tail - 1) << 2 | 2, 1, 0]) if tail else b"")
    return varint(count) + b"\0\0" + copies
