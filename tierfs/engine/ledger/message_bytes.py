"""Read a Pulsar entry from the front, never beyond its end, and decompress its payload. Pure.

The size of the output is known from the metadata: each codec writes into a buffer of that size and must fill it.
The buffer is allocated once the size proves to be within the caller's limit. Zstandard also reserves the window that
the frame asks for, at most 128 MiB; that is address space, and no memory until output is written (measured).
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB

M = TypeVar("M", bound=Message)

# Limit for all metadata of an entry and its batch together; more than Pulsar's largest entry by default.
MAX_METADATA_BYTES = 8 * MIB


class MessageReader:
    """Takes bytes and metadata from the front of `rest`. Raises DataLoss naming `where`."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.rest = data
        self.where = where
        self._metadata_bytes = 0

    def take(self, count: int, what: str) -> memoryview:
        """Return the next `count` bytes."""
        if not 0 <= count <= len(self.rest):
            raise damaged(self.where, f"{what} has {count} bytes, and {len(self.rest)} are left")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, what: str) -> int:
        """Return the next u32."""
        return int.from_bytes(self.take(4, what), "big")

    def skip(self, magic: bytes) -> bool:
        """Skip `magic` if it is next; return whether it was."""
        is_next = self.rest[: len(magic)] == magic
        if is_next:
            self.rest = self.rest[len(magic) :]
        return is_next

    def metadata(self, kind: type[M]) -> M:
        """Decode the next protobuf message, after its size. The sum of all their sizes is bounded."""
        name = kind.DESCRIPTOR.name
        size = self.number(f"the size of {name}")
        self._metadata_bytes += size
        if self._metadata_bytes > MAX_METADATA_BYTES:
            raise damaged(self.where, f"{name} brings its metadata to {self._metadata_bytes} bytes")
        try:
            message = kind.FromString(bytes(self.take(size, name)))
        except DecodeError as exc:
            raise damaged(self.where, f"{name} cannot be decoded") from exc
        if not message.IsInitialized():
            raise damaged(self.where, f"{name} is not complete")
        return message


def payload_as_json(payload: bytes, *, is_text: bool = True) -> dict[str, object]:
    """Return a payload as text if it may be one and is UTF-8, else as base64."""
    if is_text:
        with suppress(UnicodeDecodeError):
            return {"payload": payload.decode()}
    return {"payload_base64": b64encode(payload).decode("ascii")}


def damaged(where: str, why: str) -> DataLoss:
    """Return the error of an entry whose bytes contradict themselves."""
    return DataLoss(f"{where} is damaged: {why}")


class Compression(IntEnum):
    """Numbers of Pulsar's CompressionType."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


# Text and JSON are packed less than this (a guess).
_USUAL_RATIO = 16

_Buffer = bytes | bytearray | memoryview


def decompress(compression: Compression, data: memoryview, size_bytes: int, limit_bytes: int, where: str) -> _Buffer:
    """Decompress `data` to `size_bytes` bytes; return `data` itself when it is not compressed.

    Raises DataLoss naming `where` for another size, for damage, and for more than `limit_bytes`.
    """
    if compression is Compression.NONE:
        return data
    if size_bytes > limit_bytes:
        raise DataLoss(f"{where} unpacks to {size_bytes} bytes, more than the limit of {limit_bytes}")
    from cramjam import DecompressionError

    try:
        output, count = _CODECS[compression](data, size_bytes)
    except (DecompressionError, zlib.error) as exc:
        raise DataLoss(f"{where} is damaged: its {compression.name} payload cannot be unpacked: {exc}") from exc
    if count != size_bytes:
        raise DataLoss(f"{where} is damaged: its {compression.name} payload does not unpack to {size_bytes} bytes")
    return output


def decompress_stream(compression: Compression, data: memoryview, limit_bytes: int, where: str) -> bytes:
    """Decompress a stream with its end, as RocketMQ writes it: an LZ4 frame, zlib or Zstandard.

    Raises DataLoss naming `where` for damage, and for more than `limit_bytes`.
    """
    from cramjam import DecompressionError, lz4, zstd

    if compression is Compression.ZLIB:
        stream = zlib.decompressobj()
        try:
            output = stream.decompress(data, limit_bytes)
        except zlib.error as exc:
            raise damaged(where, f"its {compression.name} body cannot be unpacked: {exc}") from exc
        if not stream.eof:
            raise damaged(where, f"its {compression.name} body is cut, or unpacks to more than {limit_bytes} bytes")
        return output
    into = (lz4 if compression is Compression.LZ4 else zstd).decompress_into
    # Its size is not known, and cramjam fills a buffer or fails: few messages are packed better, and cost another try.
    size = max(len(data) * _USUAL_RATIO, CRC_BLOCK_BYTES)
    while True:
        buffer = bytearray(min(size, limit_bytes))
        try:
            return bytes(buffer[: into(data, buffer)])
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
    from cramjam import zstd

    output = bytearray(size_bytes)
    return output, zstd.decompress_into(data, output)


def _snappy(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    """Decompress the raw format, not the one with frames."""
    from cramjam import snappy

    output = bytearray(size_bytes)
    return output, snappy.decompress_raw_into(data, output)


_CODECS: dict[Compression, Callable[[memoryview, int], tuple[_Buffer, int]]] = {
    Compression.LZ4: _lz4,
    Compression.ZLIB: _zlib,
    Compression.ZSTD: _zstd,
    Compression.SNAPPY: _snappy,
}
