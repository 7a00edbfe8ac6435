"""Keys of the LMDB databases: big-endian, so that byte order is number order. All fit LMDB's 511 bytes."""

from __future__ import annotations

import struct

from tierfs.types import Tier

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_CHUNK = struct.Struct(">QBQ")
_PAIR = struct.Struct(">QQ")

U64_BYTES = _U64.size
MAX_U64 = 2**64 - 1


def u32(value: int) -> bytes:
    """Key of `locations`."""
    return _U32.pack(value)


def u64(value: int) -> bytes:
    """Key of every database ordered by one number."""
    return _U64.pack(value)


def read_u64(key: bytes) -> int:
    """The first number of a key."""
    return int(_U64.unpack_from(key)[0])


def chunk(segment_id: int, tier: Tier, start_offset: int) -> bytes:
    """Key of `chunks`."""
    return _CHUNK.pack(segment_id, tier, start_offset)


def chunk_prefix(segment_id: int, tier: Tier) -> bytes:
    """What all keys of one chain begin with."""
    return chunk(segment_id, tier, 0)[: U64_BYTES + 1]


def pair(first: int, second: int) -> bytes:
    """Key of `checksums`, `garbage`, `entries` and `ledgers`."""
    return _PAIR.pack(first, second)


def dirent(parent_id: int, name: str) -> bytes:
    """Key of `dirents`."""
    return _U64.pack(parent_id) + name.encode()


def dirent_name(key: bytes) -> str:
    """The name in a key of `dirents`."""
    return key[U64_BYTES:].decode()
