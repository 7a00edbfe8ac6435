"""Decode the messages of an Apache RocketMQ commit log, and find where one begins. Pure.

A message, with big-endian integers (RocketMQ's MessageDecoder and, for tiered storage, MessageFormatUtil):

    u32 size | u32 magic | u32 CRC32 of the body | u32 queue | u32 flag | u64 queue offset | u64 offset in the log
    u32 system flag | u64 born ms | born host | u64 store ms | store host | u32 reconsume times | u64 transaction offset
    u32 + body | u8 + topic (u16 in the second version) | u16 + properties

A host is an IPv4 or IPv6 address and a u32 port. A file segment ends with a coda of 16 bytes: its size, a magic of its
own and the newest store time before it. The offset in the log is that of tiered storage: it is written anew as a
message is uploaded. Every byte is hostile: sizes are bounded by what is there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB
from tierfs.engine.ledger.compression import MessageCompression, decompress_stream
from tierfs.engine.ledger.message_bytes import payload_as_json

# MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2 and BLANK_MAGIC_CODE of RocketMQ.
MAGIC, MAGIC_2, CODA_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
CODA_BYTES = 16

# Up to and with the store time: all that is needed to find a message by time.
HEAD_BYTES = 76
_HEAD = struct.Struct(">IIIIIQQIQ")
_BORN_AT = _HEAD.size
_V6_BORN, _V6_STORED = 1 << 4, 1 << 5
_PORT_BYTES, _V4_BYTES, _V6_BYTES = 4, 4, 16

# With IPv4 hosts, and neither body, topic nor properties.
_LEAST_BYTES = 91

# More than RocketMQ's limit of a message, 4 MiB by default.
MAX_MESSAGE_BYTES = 64 * MIB

_COMPRESSED = 1
# Bits of the system flag that name the compression, and its numbers (RocketMQ's CompressionType); 0: older than they.
_TYPE_SHIFT, _TYPE_MASK = 8, 7
_COMPRESSIONS = {
    0: MessageCompression.ZLIB,
    1: MessageCompression.LZ4,
    2: MessageCompression.ZSTD,
    3: MessageCompression.ZLIB,
}

# RocketMQ drops the sign bit (UtilAll.crc32).
_CRC_MASK = 0x7FFFFFFF

_NAME_END, _PROPERTY_END = "\x01", "\x02"


@dataclass(frozen=True, slots=True)
class LogHead:
    """The front of a message, or a coda."""

    size: int
    """In bytes, of all of it."""
    store_ms: int
    """Of a coda the newest before it."""
    is_coda: bool = False
    queue_offset: int = 0
    log_offset: int = 0


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of a commit log. Times are milliseconds since the epoch."""

    topic: str
    queue_id: int
    queue_offset: int
    store_ms: int
    born_ms: int
    body: bytes
    """Not compressed."""
    size: int
    log_offset: int = 0
    store_host: str = ""
    born_host: str = ""
    flag: int = 0
    system_flag: int = 0
    reconsume_times: int = 0
    transaction_offset: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    def as_json(self, offset: int) -> dict[str, object]:
        """Return the message, whose first byte is at `offset` of the segment, as one JSON object."""
        line: dict[str, object] = {
            "queue_offset": self.queue_offset,
            "offset": offset,
            "length": self.size,
            "store_time_ms": self.store_ms,
            "born_time_ms": self.born_ms,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "store_host": self.store_host,
            "born_host": self.born_host,
        }
        numbers = ("flag", "system_flag", "reconsume_times", "transaction_offset")
        line |= {name: getattr(self, name) for name in numbers if getattr(self, name)}
        if self.properties:
            line["properties"] = dict(self.properties)
        return line | payload_as_json(self.body)


def head_of(data: memoryview) -> LogHead | None:
    """Return the head at the front of `data`; None unless HEAD_BYTES of a message, or a coda, are there."""
    if len(data) < CODA_BYTES:
        return None
    size, magic, newest_ms = struct.unpack_from(">IIQ", data)
    if magic == CODA_MAGIC:
        return LogHead(size, newest_ms, is_coda=True) if size == CODA_BYTES else None
    if magic not in (MAGIC, MAGIC_2) or not _LEAST_BYTES <= size <= MAX_MESSAGE_BYTES or len(data) < HEAD_BYTES:
        return None
    fields = _HEAD.unpack_from(data)
    at = _BORN_AT + _PORT_BYTES + (_V6_BYTES if fields[7] & _V6_BORN else _V4_BYTES)
    (store_ms,) = struct.unpack_from(">Q", data, at)
    return LogHead(size, store_ms, queue_offset=fields[5], log_offset=fields[6])


def first_head(data: memoryview, offset: int, end: int) -> tuple[int, LogHead] | None:
    """Return the first message or coda in `data`, which begins at `offset` of a log that ends at `end`; None without.

    A magic in a body deceives nobody: the message names its own offset in the log, or another one follows it.
    """
    at = 0
    while (place := _next_magic(data, at)) is not None:
        head = head_of(data[place:])
        if head is not None and _fits(data, place, head, offset, end):
            return offset + place, head
        at = place + 1
    return None


def _next_magic(data: memoryview, at: int) -> int | None:
    """Return where the next message may begin, 4 bytes before one of the magics."""
    whole = bytes(data)
    magics = (magic.to_bytes(4, "big") for magic in (MAGIC, MAGIC_2, CODA_MAGIC))
    places = [place - 4 for magic in magics if (place := whole.find(magic, at + 4)) >= 0]
    return min(places, default=None)


def _fits(data: memoryview, place: int, head: LogHead, offset: int, end: int) -> bool:
    after = place + head.size
    if offset + after > end:
        return False
    if not head.is_coda and head.log_offset == offset + place:
        return True
    return offset + after == end or (after < len(data) and head_of(data[after:]) is not None)


def decode(data: memoryview, where: str) -> LogMessage:
    """Decode the message at the front of `data`. Raises DataLoss that names `where`."""
    reader = _FieldReader(data, where)
    size, magic, crc, queue_id, flag, queue_offset, log_offset, system_flag, born_ms = _HEAD.unpack(
        reader.take(_HEAD.size)
    )
    if magic not in (MAGIC, MAGIC_2) or not _LEAST_BYTES <= size <= len(data):
        raise DataLoss(f"{where} is truncated, or not a message of RocketMQ")
    reader.rest = reader.rest[: size - _HEAD.size]
    born_host = reader.host(is_v6=bool(system_flag & _V6_BORN))
    store_ms = reader.number(8)
    store_host = reader.host(is_v6=bool(system_flag & _V6_STORED))
    reconsume_times, transaction_offset = reader.number(4), reader.number(8)
    body = reader.take(reader.number(4))
    actual = zlib.crc32(body) & _CRC_MASK
    if crc and actual != crc & _CRC_MASK:
        raise DataLoss(f"{where} is damaged: the CRC32 of its body is {actual:08x}, not {crc:08x}")
    topic = bytes(reader.take(reader.number(2 if magic == MAGIC_2 else 1)))
    properties = bytes(reader.take(reader.number(2)))
    return LogMessage(
        topic.decode(errors="replace"),
        queue_id,
        queue_offset,
        store_ms,
        born_ms,
        _unpacked(body, system_flag, where),
        size,
        log_offset,
        store_host,
        born_host,
        flag,
        system_flag,
        reconsume_times,
        transaction_offset,
        dict(_properties(properties.decode(errors="replace"))),
    )


def _unpacked(body: memoryview, system_flag: int, where: str) -> bytes:
    if not system_flag & _COMPRESSED:
        return bytes(body)
    number = system_flag >> _TYPE_SHIFT & _TYPE_MASK
    compression = _COMPRESSIONS.get(number)
    if compression is None:
        raise DataLoss(f"{where} has the unknown compression {number}", remedy="upgrade tierfs")
    return decompress_stream(compression, body, MAX_MESSAGE_BYTES, where)


def _properties(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.split(_PROPERTY_END):
        name, separator, value = pair.partition(_NAME_END)
        if separator:
            yield name, value


class _FieldReader:
    def __init__(self, data: memoryview, where: str) -> None:
        self.rest = data
        self._where = where

    def take(self, count: int) -> memoryview:
        if count > len(self.rest):
            raise DataLoss(f"{self._where} is damaged: a field of {count} bytes, and {len(self.rest)} are left")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def host(self, *, is_v6: bool) -> str:
        address = ip_address(bytes(self.take(_V6_BYTES if is_v6 else _V4_BYTES)))
        port = self.number(_PORT_BYTES)
        return f"[{address}]:{port}" if is_v6 else f"{address}:{port}"
