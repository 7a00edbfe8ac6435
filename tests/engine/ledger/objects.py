"""Ledgers for tests: whole objects in memory, and objects that only Pulsar writes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tierfs.engine.ledger.block_reader import BlockRange, LedgerEntry, entries_of, read_entries, scan_batches
from tierfs.engine.ledger.blocks import encode_blocks, plan_blocks
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.metadata import LedgerInfo, LedgerMetadata, LedgerState

NAME = "u-ledger-7"

DEADLINE_MS = 5000
"""Limit of one example; it takes milliseconds, unless the machine is very busy or a decoder loops."""


@dataclass
class Written:
    """A ledger's two objects, and the entries they were made of."""

    payloads: list[bytes]
    index: LedgerIndex
    data: bytes
    blocks: list[bytes]
    index_bytes: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.index_bytes = encode_index(self.index)


def closed(entries: int, payload_bytes: int) -> LedgerMetadata:
    """The metadata of a closed ledger."""
    return LedgerMetadata(
        write_quorum=1,
        ensemble_size=1,
        length=payload_bytes,
        last_entry_id=entries - 1,
        state=LedgerState.CLOSED,
    )


def write(payloads: Sequence[bytes], max_block_bytes: int) -> Written:
    """A ledger as tierfs writes it."""
    plans = plan_blocks(list(map(len, payloads)), max_block_bytes)
    blocks = list(map(bytes, encode_blocks(enumerate(payloads), plans)))
    index = LedgerIndex.of_plans(closed(len(payloads), sum(map(len, payloads))), plans)
    return Written(list(payloads), index, b"".join(blocks), blocks)


def read(data: bytes, spans: Sequence[BlockRange], *, piece_bytes: int = 2**20) -> tuple[list[LedgerEntry], list[str]]:
    """Return all entries that an index names, and the deviations."""
    deviations = Deviations()
    pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    return list(read_entries(pieces, spans, NAME, deviations)), deviations.messages


def payloads_of(entries: Sequence[LedgerEntry]) -> list[bytes]:
    """The payloads of entries."""
    return [entry.payload for entry in entries]


def frame(entry_id: int, payload: bytes) -> bytes:
    """An entry in a block."""
    return struct.pack(">iq", len(payload), entry_id) + payload


def streaming_block(ledger_id: int, first_entry_id: int, payloads: Sequence[bytes], block_bytes: int) -> bytes:
    """A block of the streaming form, filled up to its size."""
    block = struct.pack(">Iqqqq", 0x26A66D32, 128, block_bytes, first_entry_id, ledger_id).ljust(128, b"\0")
    block += b"".join(frame(entry_id, payload) for entry_id, payload in enumerate(payloads, first_entry_id))
    assert len(block) <= block_bytes
    return block + padding(block_bytes - len(block))


def padding(size: int) -> bytes:
    """The end padding of a block that Pulsar wrote."""
    return (bytes.fromhex("fedcdead") * (size // 4 + 1))[:size]


def streaming_index(
    data_object_length: int,
    sections: Sequence[tuple[LedgerInfo, Sequence[tuple[int, int, int]]]],
    header_bytes: int = 128,
) -> bytes:
    """An index object of the streaming form: per ledger its record, and first entry, part and offset of each block."""
    body = b""
    for info, rows in sections:
        record = info.encode()
        body += struct.pack(">qii", info.ledger_id, len(rows), len(record)) + record
        body += b"".join(struct.pack(">qiq", *row) for row in rows)
    return struct.pack(">IIqq", 0x3D1FB0BC, 24 + len(body), data_object_length, header_bytes) + body


def scanned(pieces: Sequence[bytes], name: str, deviations: Deviations) -> Iterator[LedgerEntry]:
    """The entries of a whole data object, read without its index."""
    source = DecoderSource(pieces, 0, name)
    for _, batch in scan_batches(source, sum(map(len, pieces)), deviations):
        yield from entries_of(source, batch)
