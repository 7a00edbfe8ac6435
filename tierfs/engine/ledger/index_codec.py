"""Encoding of index objects. Pure.

Format 1 describes one ledger; the streaming form has a section per ledger. The first four bytes tell them apart.
Counts and lengths are checked against the available bytes before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import InvalidRequest
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import IndexEntry, LedgerIndex, LedgerSection, StreamingIndex
from tierfs.engine.ledger.metadata import LedgerInfo, LedgerMetadata, ProtobufRecord

MAGIC = 0xDE47DE47
STREAMING_MAGIC = 0x3D1FB0BC

# 200,000 blocks, a guess: S3 takes 10,000 parts per object. A larger index is refused, at best before it is read.
MAX_INDEX_BYTES = 4 * 1024 * 1024

# Magic, length of the index, length of the data object, length of a block header.
_START = struct.Struct(">IIqq")

# Number of blocks, length of the metadata that follows.
_COUNTS = struct.Struct(">ii")

# Before the counts in the streaming form: the section's ledger id.
_LEDGER = struct.Struct(">q")

# First entry id, part id, offset.
ENTRY = struct.Struct(">qiq")

R = TypeVar("R", bound=ProtobufRecord)


def encode_index(index: LedgerIndex) -> bytes:
    """Encode the index object of format 1. Raises InvalidRequest for unordered blocks and numbers that do not fit."""
    for before, entry in pairwise(index.entries):
        if entry.first_entry_id <= before.first_entry_id:
            raise InvalidRequest(
                f"the block of entry {entry.first_entry_id} follows that of entry {before.first_entry_id}"
            )
    metadata = index.metadata.encode()
    length = _START.size + _COUNTS.size + len(metadata) + len(index.entries) * ENTRY.size
    try:
        start = _START.pack(MAGIC, length, index.data_object_length, index.data_header_length)
        return start + _COUNTS.pack(len(index.entries), len(metadata)) + metadata + pack_entries(index.entries)
    except struct.error as exc:
        raise InvalidRequest(f"an index of {len(index.entries)} blocks cannot be encoded: {exc}") from exc


def decode_index(data: Buffer, name: str, deviations: Deviations) -> LedgerIndex | StreamingIndex:
    """Decode an index from the whole of its object. Raises DataLoss naming the object."""
    source = DecoderSource([data], 0, name)
    if len(data) > MAX_INDEX_BYTES:
        raise source.damage(f"an index of {len(data)} bytes is more than {MAX_INDEX_BYTES}")
    magic, length, data_object_length, data_header_length = source.unpack(_START)
    if magic not in (MAGIC, STREAMING_MAGIC):
        raise source.damage(f"it starts with {magic:08x}, which is not the magic word of an index")
    if length != len(data):
        deviations.add(f"{source.name}: the index has {len(data)} bytes, but says {length}")
    if magic == STREAMING_MAGIC:
        sections = _sections(source, len(data), deviations)
        return StreamingIndex(data_object_length, data_header_length, sections)
    metadata, entries = _section(source, len(data), LedgerMetadata, deviations)
    return LedgerIndex(metadata, data_object_length, entries, data_header_length)


def _sections(source: DecoderSource, index_bytes: int, deviations: Deviations) -> tuple[LedgerSection, ...]:
    """Decode all sections up to the end; of two for one ledger the later one counts, as in Pulsar's reader."""
    by_ledger: dict[int, LedgerSection] = {}
    while source.position < index_bytes:
        (ledger_id,) = source.unpack(_LEDGER)
        info, entries = _section(source, index_bytes, LedgerInfo, deviations)
        if ledger_id in by_ledger or ledger_id != info.ledger_id:
            deviations.add(f"{source.name}: a section of ledger {ledger_id} repeats it or describes {info.ledger_id}")
        by_ledger[ledger_id] = LedgerSection(ledger_id, info, entries)
    return tuple(by_ledger.values())


def _section(
    source: DecoderSource, index_bytes: int, kind: type[R], deviations: Deviations
) -> tuple[R, tuple[IndexEntry, ...]]:
    count, metadata_bytes = source.unpack(_COUNTS)
    remaining = index_bytes - source.position
    if count < 0 or metadata_bytes < 0 or metadata_bytes + count * ENTRY.size > remaining:
        raise source.damage(
            f"{count} blocks and {metadata_bytes} bytes of metadata are not in the {remaining} bytes left"
        )
    record = kind.decode(source.take(metadata_bytes), source.name)
    return record, unpack_entries(source, count, deviations)


def unpack_entries(source: DecoderSource, count: int, deviations: Deviations) -> tuple[IndexEntry, ...]:
    """Decode the rows of blocks, ordered by entry; of two for one entry the first counts, as in Pulsar."""
    rows = [IndexEntry(*row) for row in ENTRY.iter_unpack(source.take(count * ENTRY.size))]
    first_of: dict[int, IndexEntry] = {}
    for row in rows:
        first_of.setdefault(row.first_entry_id, row)
    entries = tuple(first_of[entry_id] for entry_id in sorted(first_of))
    if list(entries) != rows:
        deviations.add(f"{source.name}: its blocks are not in the order of their entries, or are repeated")
    return entries


def pack_entries(entries: Iterable[IndexEntry]) -> bytes:
    """Encode the rows of blocks. Raises struct.error for numbers that do not fit."""
    return b"".join(ENTRY.pack(entry.first_entry_id, entry.part_id, entry.offset) for entry in entries)
