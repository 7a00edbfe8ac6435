"""Takes an entry of Pulsar apart from the front, and lets no size lead beyond its end. Pure.

The compressions of Pulsar's payloads. Pure.

The size of the output is known from the metadata: each codec writes into a buffer of that size and must fill it.
A buffer is made once the size proves to be within the caller's limit. Zstandard also reserves a window, as the
frame asks for, of at most 128 MiB; that is address space, and no memory until output is written (measured).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tierfs.errors import DataLoss
from tierfs.types import MIB

M = TypeVar("M", bound=Message)

MAX_METADATA_BYTES = 8 * MIB
"""All metadata of an entry, and all of the messages of its batch; more than Pulsar's largest entry by default."""


class MessageReader:
    """Takes bytes and metadata from the front of `rest`. Raises DataLoss naming `where`."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.rest = data
        self.where = where
        self._metadata_bytes = 0

    def take(self, count: int, what: str) -> memoryview:
        """The next `count` bytes."""
        if not 0 <= count <= len(self.rest):
            raise damaged(self.where, f"{what} has {count} bytes, and {len(self.rest)} are left")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, what: str) -> int:
        """The next u32."""
        return int.from_bytes(self.take(4, what), "big")

    def skip(self, magic: bytes) -> bool:
        """Whether `magic` came next; then it is taken."""
        found = self.rest[: len(magic)] == magic
        if found:
            self.rest = self.rest[len(magic) :]
        return found

    def metadata(self, kind: type[M]) -> M:
        """The next message of protobuf, behind its size. All of them together are bounded."""
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


def damaged(where: str, why: str) -> DataLoss:
    """The error of an entry whose bytes contradict themselves."""
    return DataLoss(f"{where} is damaged: {why}")


class Compression(IntEnum):
    """Numbers of Pulsar's CompressionType."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


_Buffer = bytes | bytearray | memoryview


def decompress(compression: Compression, data: memoryview, size_bytes: int, limit_bytes: int, where: str) -> _Buffer:
    """The `size_bytes` bytes behind `data`; `data` itself when it is not compressed.

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


def _lz4(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    """A block without frame and without its length in front.

    cramjam tries a block that fails once more, with its first four bytes as the length, which Pulsar does not.
    """
    from cramjam import lz4

    if data[:4] == size_bytes.to_bytes(4, "little"):
        lz4.decompress_block(data, output_len=size_bytes)
    output = bytearray(size_bytes)
    return output, lz4.decompress_block_into(data, output, output_len=size_bytes)


def _zlib(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    """A stream that need not end: Pulsar flushes it and leaves out the end and the checksum."""
    output = zlib.decompressobj().decompress(data, size_bytes + 1)  # 0 would be no limit
    return output, len(output)


def _zstd(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    from cramjam import zstd

    output = bytearray(size_bytes)
    return output, zstd.decompress_into(data, output)


def _snappy(data: memoryview, size_bytes: int) -> tuple[_Buffer, int]:
    """The raw format, not the one with frames."""
    from cramjam import snappy

    output = bytearray(size_bytes)
    return output, snappy.decompress_raw_into(data, output)


_CODECS: dict[Compression, Callable[[memoryview, int], tuple[_Buffer, int]]] = {
    Compression.LZ4: _lz4,
    Compression.ZLIB: _zlib,
    Compression.ZSTD: _zstd,
    Compression.SNAPPY: _snappy,
}
