"""Decompress the payload of a Pulsar entry. Pure.

The size of the output is known from the metadata: each codec writes into a buffer of that size and must fill it.
The buffer is allocated once the size proves to be within the caller's limit. Zstandard also reserves the window that
the frame asks for, at most 128 MiB; that is address space, and no memory until output is written (measured).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.frames import zstd
from tierfs.engine.ledger.message_bytes import damaged

# Text and JSON are packed less than this (a guess).
_USUAL_RATIO = 16

_Buffer = bytes | bytearray | memoryview


class MessageCompression(IntEnum):
    """Numbers of Pulsar's CompressionType."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


def decompress(
    compression: MessageCompression, data: memoryview, size_bytes: int, limit_bytes: int, where: str
) -> _Buffer:
    """Decompress `data` to `size_bytes` bytes; return `data` itself when it is not compressed.

    Raises DataLoss naming `where` for another size, for damage, and for more than `limit_bytes`.
    """
    if compression is MessageCompression.NONE:
        return data
    if size_bytes > limit_bytes:
        raise DataLoss(f"{where} unpacks to {size_bytes} bytes, more than the limit of {limit_bytes}")
    from cramjam import DecompressionError

    try:
        output, count = _CODECS[compression](data, size_bytes)
    except (DecompressionError, DataLoss, zlib.error) as exc:
        raise DataLoss(f"{where} is damaged: its {compression.name} payload cannot be unpacked: {exc}") from exc
    if count != size_bytes:
        raise DataLoss(f"{where} is damaged: its {compression.name} payload does not unpack to {size_bytes} bytes")
    return output


def decompress_stream(compression: MessageCompression, data: memoryview, limit_bytes: int, where: str) -> bytes:
    """Decompress a stream with its end, as RocketMQ writes it: an LZ4 frame, zlib or Zstandard.

    Raises DataLoss naming `where` for damage, and for more than `limit_bytes`.
    """
    if compression is MessageCompression.ZSTD:
        try:
            return zstd.decompress(data, limit_bytes)
        except DataLoss as exc:
            raise damaged(where, f"its {compression.name} body cannot be unpacked: {exc}") from exc
    if compression is MessageCompression.ZLIB:
        stream = zlib.decompressobj()
        try:
            output = stream.decompress(data, limit_bytes)
        except zlib.error as exc:
            raise damaged(where, f"its {compression.name} body cannot be unpacked: {exc}") from exc
        if not stream.eof:
            raise damaged(where, f"its {compression.name} body is cut, or unpacks to more than {limit_bytes} bytes")
        return output
    from cramjam import DecompressionError, lz4

    # Its size is not known, and cramjam fills a buffer or fails: few messages are packed better, and cost another try.
    size = max(len(data) * _USUAL_RATIO, CRC_BLOCK_BYTES)
    while True:
        buffer = bytearray(min(size, limit_bytes))
        try:
            return bytes(buffer[: lz4.decompress_into(data, buffer)])
        except DecompressionError as exc:
            if size >= limit_bytes:
                raise damaged(where, f"its {compression.name} body cannot be unpacked: {exc}") from exc
        size *= _USUAL_RATIO


def _lz4(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    """Decompress a block without frame and without its length before it.

    cramjam retries a failed block with its first four bytes as the length, which Pulsar does not.
    """
    from cramjam import lz4

    if data[:4] == size_bytes.to_bytes(4, "little"):
        lz4.decompress_block(data, output_len=size_bytes)
    output = bytearray(size_bytes)
    return output, lz4.decompress_block_into(data, output, output_len=size_bytes)


def _zlib(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    """Decompress a stream without an end: Pulsar flushes it and omits the end and the checksum."""
    output = zlib.decompressobj().decompress(data, size_bytes + 1)  # 0 would be no limit
    return output, len(output)


def _zstd(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    output = zstd.decompress(data, size_bytes)
    return output, len(output)


def _snappy(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    """Decompress the raw format, not the one with frames."""
    from cramjam import snappy

    output = bytearray(size_bytes)
    return output, snappy.decompress_raw_into(data, output)


_CODECS: dict[MessageCompression, Callable[[memoryview, int], tuple[_Buffer, int]]] = {
    MessageCompression.LZ4: _lz4,
    MessageCompression.ZLIB: _zlib,
    MessageCompression.ZSTD: _zstd,
    MessageCompression.SNAPPY: _snappy,
}
