"""A reader of buckets written from docs/format.md alone: the standard library and a decoder of zstd, none of tierfs.

It proves that the document is enough, and keeps the format as it is.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cramjam import zstd

Fields = dict[int, list[int | bytes]]
"""Field number -> its values in order."""

Get = Callable[[str], bytes]
"""The bytes of an object of the bucket."""

_HEADER = struct.Struct(">4sIIQ")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LOST = 2
_ROOT = 1


def parse(data: bytes) -> Fields:
    """The fields of a protobuf message (protobuf.dev: encoding)."""
    fields: Fields = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = {_FIXED64: 8, _FIXED32: 4}[kind]
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        fields[tag >> 3].append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def number(fields: Fields, key: int) -> int:
    value = fields[key][-1] if fields[key] else 0
    assert isinstance(value, int)
    return value


def text(fields: Fields, key: int) -> str:
    return blob(fields, key).decode()


def blob(fields: Fields, key: int) -> bytes:
    value = fields[key][-1] if fields[key] else b""
    assert isinstance(value, bytes)
    return value


def messages(fields: Fields, key: int) -> Iterator[Fields]:
    for value in fields[key]:
        assert isinstance(value, bytes)
        yield parse(value)


def crc32c(data: bytes) -> int:
    """Castagnoli, bit by bit in a table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table_entry(index: int) -> int:
    for _ in range(8):
        index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)
    return index


_TABLE = [_table_entry(index) for index in range(256)]


def unframe(data: bytes) -> Fields:
    """The message in a journal object."""
    magic, version, crc, length = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    assert (magic, crc, length) == (b"TFSJ", crc32c(payload), len(payload))
    assert version in (1, 2)
    return parse(payload if version == 1 else bytes(zstd.decompress(payload)))


@dataclass
class Chunk:
    """A run of a segment's bytes in an object."""

    start: int
    length: int
    object_id: int
    object_offset: int
    lost: bool


@dataclass
class Bucket:
    """The metadata of a bucket."""

    segments: dict[int, Fields] = field(default_factory=dict)
    directories: dict[int, Fields] = field(default_factory=dict)
    chunks: dict[int, dict[int, Chunk]] = field(default_factory=lambda: defaultdict(dict))
    object_names: dict[int, str] = field(default_factory=dict)
    epoch: int = 0
    applied: int = 0


def read_metadata(names: list[str], get: Get) -> Bucket:
    """Rebuild the metadata as docs/format.md says: newest checkpoint, then later slots."""
    bucket = Bucket()
    checkpoints = sorted(name for name in names if re.fullmatch(r"journal/checkpoint-\d{20}", name))
    base = 0
    if checkpoints:
        manifest = unframe(get(checkpoints[-1]))
        base = number(manifest, 4)
        for index in range(number(manifest, 7)):
            part = unframe(get(f"{checkpoints[-1]}.part-{text(manifest, 5)}-{index:06d}"))
            for change in messages(part, 4):
                apply(bucket, change)
        _apply_levels(bucket, manifest, names, get)
        bucket.applied, bucket.epoch = number(manifest, 6), number(manifest, 3)
    for name in sorted(name for name in names if re.fullmatch(r"journal/\d{20}", name)):
        if int(name.removeprefix("journal/")) > base:
            _apply_slot(bucket, unframe(get(name)))
    return bucket


def _apply_levels(bucket: Bucket, manifest: Fields, names: list[str], get: Get) -> None:
    """The levels of a checkpoint, if it has any: the state, then entries."""
    for depth, level in enumerate(messages(manifest, 11)):
        assert number(level, 3) == (depth > 0)
        for index, part in enumerate(_parts(level, names, get)):
            assert (number(part, 3), text(part, 2)) == (index, text(level, 2))
            for change in messages(part, 4):
                apply(bucket, change)
            for entry in messages(part, 5):
                _apply_slot(bucket, entry)
        if not depth:
            bucket.applied = number(level, 4)
    assert not manifest[11] or bucket.applied == number(manifest, 6)


def _parts(level: Fields, names: list[str], get: Get) -> Iterator[Fields]:
    """The parts of a level, each or its copy, with the checksum and the size in the manifest."""
    crcs = blob(level, 5)
    sizes, copied = list(_packed(level, 6)), list(_packed(level, 7))
    assert len(crcs) // 4 == len(sizes) == len(copied)
    for index, size in enumerate(sizes):
        name = f"journal/0-part-{number(level, 1):020d}-{text(level, 2)}-{index:06d}"
        assert (f"{name}.copy" in names) == copied[index]
        data = get(name if name in names else f"{name}.copy")
        assert (crc32c(data), len(data)) == (int.from_bytes(crcs[4 * index : 4 * index + 4], "little"), size)
        yield unframe(data)


def _apply_slot(bucket: Bucket, entry: Fields) -> None:
    if number(entry, 3) < bucket.epoch:
        return
    bucket.epoch = number(entry, 3)
    for change in messages(entry, 9):
        if number(change, 1) > bucket.applied:
            apply(bucket, change)
            bucket.applied = number(change, 1)


def apply(bucket: Bucket, change: Fields) -> None:
    """One change; those that say nothing of where bytes lie are passed over."""
    for segment in messages(change, 3):
        bucket.segments[number(segment, 2)] = segment
    if change[4]:
        bucket.segments.pop(number(change, 4), None)
        bucket.chunks.pop(number(change, 4), None)
    for directory in messages(change, 5):
        bucket.directories[number(directory, 2)] = directory
    if change[6]:
        bucket.directories.pop(number(change, 6), None)
    for link in messages(change, 7):
        _link(bucket, link)
    for packed in messages(change, 75):
        for one in messages(packed, 1):
            bucket.object_names[number(one, 2)] = text(one, 5)
        for segment in messages(packed, 3):
            bucket.segments[number(segment, 2)] = segment
        for link in messages(packed, 4):
            _link(bucket, link)
    for unlink in messages(change, 8):
        for start in _packed(unlink, 2):
            bucket.chunks[number(unlink, 1)].pop(start, None)


def _link(bucket: Bucket, link: Fields) -> None:
    for one in messages(link, 3):
        bucket.object_names[number(one, 2)] = text(one, 5)
    chain = bucket.chunks[number(link, 1)]
    for one in messages(link, 2):
        chunk = Chunk(number(one, 2), number(one, 3), number(one, 5), number(one, 6), number(one, 9) == _LOST)
        for start, old in list(chain.items()):
            if chunk.start <= start and old.start + old.length <= chunk.start + chunk.length:
                del chain[start]
        chain[chunk.start] = chunk


def read_pack(data: bytes) -> dict[tuple[str, int], bytes]:
    """Return a pack's contents without the journal: (full name, start offset) -> bytes."""
    checked, own_crc = data[-32:-4], int.from_bytes(data[-4:], "big")
    magic, version, offset, length, crc = struct.unpack(">4sIQQI", checked)
    index = data[offset : offset + length]
    assert (magic, version, own_crc, crc) == (b"TFSP", 1, crc32c(checked), crc32c(index))
    found: dict[tuple[str, int], bytes] = {}
    for entry in messages(parse(index), 6):
        payload = data[number(entry, 5) : number(entry, 5) + number(entry, 4)]
        assert crc32c(payload) == number(entry, 6)
        found[text(entry, 2), number(entry, 3)] = payload
    return found


def _packed(fields: Fields, key: int) -> Iterator[int]:
    for value in fields[key]:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            yield one


def path_of(bucket: Bucket, segment: Fields) -> str:
    """The full name of a segment."""
    parts, parent = [text(segment, 4)], number(segment, 3)
    while parent != _ROOT:
        parts.append(text(bucket.directories[parent], 4))
        parent = number(bucket.directories[parent], 3)
    return "/".join(reversed(parts))


def read_segments(names: list[str], get: Get) -> dict[str, bytes]:
    """Every segment's readable bytes, by full name."""
    bucket = read_metadata(names, get)
    found: dict[str, bytes] = {}
    for segment_id, segment in bucket.segments.items():
        start, length = number(segment, 9), number(segment, 10)
        out = bytearray(length)
        for chunk in bucket.chunks[segment_id].values():
            if not chunk.lost:
                data = get(bucket.object_names[chunk.object_id])
                out[chunk.start : chunk.start + chunk.length] = data[
                    chunk.object_offset : chunk.object_offset + chunk.length
                ]
        found[path_of(bucket, segment)] = bytes(out[start:length])
    return found
