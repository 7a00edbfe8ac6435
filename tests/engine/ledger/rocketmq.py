"""Messages of a commit log as RocketMQ writes them, field by field."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

CODA = 16


def message(
    body: bytes,
    *,
    queue_offset: int = 0,
    log_offset: int = 0,
    store_ms: int = 1_700_000_000_000,
    topic: str = "orders",
    properties: Mapping[str, str] | None = None,
    host: str = "10.0.0.1",
    system_flag: int = 0,
    second_version: bool = False,
) -> bytes:
    """One message; its body is given as it is stored."""
    address = ip_address(host)
    system_flag |= 0x30 if address.version == 6 else 0
    packed_host = address.packed + struct.pack(">I", 10911)
    name = topic.encode()
    joined = "".join(f"{key}\x01{value}\x02" for key, value in (properties or {}).items()).encode()
    rest = struct.pack(
        ">IIIQQIQ", zlib.crc32(body) & 0x7FFFFFFF, 3, 0, queue_offset, log_offset, system_flag, store_ms - 5
    )
    rest += packed_host + struct.pack(">Q", store_ms) + packed_host + struct.pack(">IQ", 0, 0)
    rest += struct.pack(">I", len(body)) + body
    rest += struct.pack(">H" if second_version else ">B", len(name)) + name
    rest += struct.pack(">H", len(joined)) + joined
    magic = 0xDAA320AB if second_version else 0xDAA320A7
    return struct.pack(">II", 8 + len(rest), magic) + rest


def coda(store_ms: int) -> bytes:
    """The end of a file segment."""
    return struct.pack(">IIQ", CODA, 0xCBD43194, store_ms)


def log(bodies: Sequence[bytes], times: Sequence[int], *, start: int = 0, first: int = 0, **fields: object) -> bytes:
    """A log of messages that begins at an offset, and with a number in its queue."""
    data = bytearray()
    for number, (body, store_ms) in enumerate(zip(bodies, times, strict=True)):
        data += message(
            body,
            queue_offset=first + number,
            log_offset=start + len(data),
            store_ms=store_ms,
            **fields,  # type: ignore[arg-type]
        )
    return bytes(data)


def consume_queue(log_bytes: bytes, start: int = 0) -> bytes:
    """The queue of a log: 20 bytes a message."""
    rows, at = b"", 0
    while at < len(log_bytes):
        size, magic = struct.unpack_from(">II", log_bytes, at)
        if magic != 0xCBD43194:
            rows += struct.pack(">QIQ", start + at, size, 0)
        at += size
    return rows
