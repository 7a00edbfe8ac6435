"""Read a ledger's objects in place, ours or adopted: their indexes, and the entries in order.

Indexes are small and read as a whole; data objects are read ahead, in pieces, and never kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ByteRange, PayloadEncoding
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.ledger import block_reader, single_object
from tierfs.engine.ledger.block_reader import BlockEntryBatch, BlockRange
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex, StreamingIndex
from tierfs.engine.ledger.index_codec import MAX_INDEX_BYTES, decode_index
from tierfs.engine.ledger.metadata import LedgerInfo, LedgerMetadata
from tierfs.engine.ledger.single_object import MagicWords

# Suffix of the file beside an object in a directory, with the user metadata that a bucket would hold.
METADATA_SUFFIX = ".json"

# Custom metadata in which Pulsar names the managed ledger of each ledger that it makes.
MANAGED_LEDGER_PROPERTY = "pulsar/managed-ledger"

# Bytes per request, and its memory.
STEP_BYTES = 8 * MIB

# Ids are longs in BookKeeper.
MAX_ENTRIES = 2**63 - 1

# S3 takes 2 KiB of user metadata: a much larger file is something else.
_MAX_METADATA_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LedgerLayout:
    """The positions of one ledger's entries in one data object."""

    blocks: tuple[BlockRange, ...]
    entries: int | None
    """Of the whole ledger, by its index; None if the index does not state it."""
    payload_bytes: int | None
    """The same, of all payloads."""
    data_object_length: int
    managed_ledger: str = ""
    encoding: PayloadEncoding = PayloadEncoding.PULSAR_BLOCK
    magic: MagicWords | None = None
    """Of the first PIP's form only."""

    @property
    def streaming(self) -> bool:
        """Whether the object may hold other ledgers too."""
        return any(block.ledger_id is not None for block in self.blocks)

    @property
    def range(self) -> ByteRange:
        """The bytes from the first block to the end of the last one."""
        if not self.blocks:
            return ByteRange(0, 0)
        start = max(0, min(block.offset for block in self.blocks))
        return ByteRange(start, max(start, *(block.end_offset for block in self.blocks)))


def read_small(storage: ChunkStorage, stored: StoredObject, most_bytes: int = MAX_INDEX_BYTES) -> bytes:
    """Return all of a small object. Raises DataLoss for a larger one, before reading any of it."""
    if stored.length_bytes > most_bytes:
        raise DataLoss(f"{printable(stored.name)} has {stored.length_bytes} bytes; at most {most_bytes} are allowed")
    buffer = memoryview(bytearray(stored.length_bytes))
    if buffer:
        storage.read_into(stored.name, 0, buffer, if_match=stored.etag)
    return bytes(buffer)


def read_index(storage: ChunkStorage, index: StoredObject, deviations: Deviations) -> LedgerIndex | StreamingIndex:
    """Return the decoded index object, of either form. Raises DataLoss."""
    return decode_index(read_small(storage, index), index.name, deviations)


def layout(index: LedgerIndex, data: StoredObject, deviations: Deviations) -> LedgerLayout:
    """Return the layout of a ledger of format 1. Raises DataLoss if its object cannot hold it."""
    index.check(data.length_bytes, data.name, deviations)
    return LedgerLayout(
        blocks=tuple(index.blocks()),
        entries=index.metadata.readable_last_entry_id + 1,
        payload_bytes=index.metadata.length,
        data_object_length=index.data_object_length,
        managed_ledger=managed_ledger(index.metadata),
    )


def streaming_layout(
    index: StreamingIndex, ledger_id: int, data: StoredObject, end_entry_id: int | None
) -> LedgerLayout:
    """Return the layout of one ledger of the streaming form, or of its part in this object.

    `end_entry_id` is one past the last valid entry, by all indexes of the ledger; None if none of them states it.
    Raises DataLoss for an object shorter than its index says.
    """
    if data.length_bytes < index.data_object_length:
        missing = f"has {data.length_bytes} of the {index.data_object_length} bytes in its index"
        raise DataLoss(f"{printable(data.name)} {missing}")
    section = index.section(ledger_id)
    ended = replace(section.info, entries=MAX_ENTRIES if end_entry_id is None else end_entry_id)
    sections = (replace(other, info=ended) if other is section else other for other in index.sections)
    only = replace(index, sections=tuple(sections))
    return LedgerLayout(
        blocks=tuple(only.blocks(ledger_id)),
        entries=end_entry_id,
        payload_bytes=section.info.size or None,
        data_object_length=index.data_object_length,
        managed_ledger=streaming_managed_ledger(section.info),
    )


def streaming_managed_ledger(info: LedgerInfo) -> str:
    """Return the managed ledger in the record of a ledger of the streaming form; "" without one."""
    return next((prop.value for prop in info.properties if prop.key == MANAGED_LEDGER_PROPERTY), "")


def first_form_layout(
    storage: ChunkStorage, data: StoredObject, magic: MagicWords, deviations: Deviations
) -> LedgerLayout | None:
    """Return the layout of an object of the first PIP's form; None for any other object. Raises DataLoss."""
    if data.length_bytes < single_object.START_BYTES:
        return None
    start = _read(storage, data, ByteRange(0, single_object.START_BYTES))
    if bytes(start[: len(magic.index)]) != magic.index:
        return None
    located = single_object.index_range(start, data.length_bytes, magic, data.name)
    index = single_object.decode_index(_read(storage, data, located), data.length_bytes, magic, data.name, deviations)
    if not index.entries and index.metadata.readable_last_entry_id >= 0:
        raise DataLoss(f"{printable(data.name)}: its entries are in no block of the index")
    return LedgerLayout(
        blocks=tuple(index.blocks(data.length_bytes)),
        entries=index.metadata.readable_last_entry_id + 1,
        payload_bytes=index.metadata.length,
        data_object_length=data.length_bytes,
        managed_ledger=managed_ledger(index.metadata),
        encoding=PayloadEncoding.FIRST_BLOCK,
        magic=magic,
    )


def magic_words_of(storage: ChunkStorage, data: StoredObject) -> MagicWords:
    """Return the magic words of an object of the first PIP's form: at its start, and at the end of its index.

    Raises DataLoss if it ends before.
    """
    start = bytes(_read(storage, data, ByteRange(0, min(single_object.START_BYTES, data.length_bytes))))
    index_bytes = int.from_bytes(start[4:8], "big")
    if index_bytes + 4 > data.length_bytes:
        raise DataLoss(f"{printable(data.name)} ends within its index")
    return MagicWords(start[:4], bytes(_read(storage, data, ByteRange(index_bytes, index_bytes + 4))))


def managed_ledger(metadata: LedgerMetadata) -> str:
    """Return the managed ledger that Pulsar stored with the ledger itself; "" without one."""
    value = next((prop.value for prop in metadata.custom if prop.key == MANAGED_LEDGER_PROPERTY), None)
    return (value or b"").decode(errors="replace")


def batches(source: DecoderSource, laid: LedgerLayout, deviations: Deviations) -> Iterator[BlockEntryBatch]:
    """Return the entries in batches; see block_reader.read_batches."""
    if laid.magic is not None:
        return single_object.read_batches(source, laid.blocks, laid.magic, deviations)
    return block_reader.read_batches(source, laid.blocks, deviations)


def metadata_beside(storage: ChunkStorage, name: str) -> Mapping[str, str] | None:
    """Return user metadata from the file beside an object, lower-case keys; None without one. Raises DataLoss.

    The format is that of `aws s3api put-object --metadata`, or one level down, under `metadata`, that of `head-object`.
    """
    try:
        beside = storage.stat(name + METADATA_SUFFIX)
    except NotFound:
        return None
    try:
        parsed = json.loads(read_small(storage, beside, _MAX_METADATA_FILE_BYTES))
    except (ValueError, RecursionError) as exc:
        raise DataLoss(f"{printable(beside.name)} is not JSON") from exc
    metadata = parsed.get("metadata", parsed) if isinstance(parsed, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DataLoss(f'{printable(beside.name)} is not like {{"KEY": "VALUE", ...}}')
    return {key.lower(): value for key, value in metadata.items()}


def _read(storage: ChunkStorage, stored: StoredObject, wanted: ByteRange) -> memoryview:
    buffer = memoryview(bytearray(wanted.length_bytes))
    storage.read_into(stored.name, wanted.start, buffer, if_match=stored.etag)
    return buffer


class Pieces:
    """Reads ranges of objects ahead, each in order, with `jobs` requests at once. Thread-safe; close it."""

    def __init__(self, storage: ChunkStorage, jobs: int, readers: int = 1) -> None:
        """`readers` is the number of ranges read at a time. About 8 MiB for each reader and each job are in memory."""
        if jobs < 1 or readers < 1:
            raise InvalidRequest("at least one job and one reader are needed")
        self._storage = storage
        self._pool = Pool(jobs, "tierfs-pieces", str(storage))
        self._ahead = max(2, jobs // readers)

    def of(self, stored: StoredObject, wanted: ByteRange) -> Iterator[memoryview]:
        """Return the bytes of a range of one version of an object. Raises as the storage does, Closed once closed."""
        starts = range(wanted.start, wanted.end, STEP_BYTES)
        pieces = (ByteRange(start, min(start + STEP_BYTES, wanted.end)) for start in starts)
        return self._pool.in_order(partial(_read, self._storage, stored), pieces, ahead=self._ahead)

    def close(self) -> None:
        """Stop reading; idempotent."""
        self._pool.close()
