"""Finding the entries of a ledger's cold object by reading it: what its index names, or its blocks' own headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tierfs.background.publish import read_small
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import NotFound
from tierfs.ledger.block_reader import Entry, read_entries, scan_blocks
from tierfs.ledger.deviations import Deviations
from tierfs.ledger.index import LedgerIndex
from tierfs.ledger.index_codec import decode_index
from tierfs.metadata.ledger_records import MAX_RUN_ENTRIES, EntryRun
from tierfs.metadata.records import ObjectRecord
from tierfs.types import MIB, PayloadEncoding

_STEP_BYTES = 8 * MIB

_FRAME_BYTES = PayloadEncoding.PULSAR_BLOCK.frame_bytes


def scan(storage: ChunkStorage, holder: ObjectRecord) -> Iterator[EntryRun]:
    """The runs of a ledger in Pulsar's blocks, the first entry first; reads all of the object.

    Raises DataLoss where an entry is not there, and what the storage raises.
    """
    deviations = Deviations()
    pieces = _pieces(storage, holder)
    try:
        index = decode_index(read_small(storage, holder.index_name), holder.index_name, deviations)
    except NotFound:
        found = (entry for _, entry in scan_blocks(pieces, holder.stored_bytes, holder.name, deviations))
        return runs_of(found, holder.payload_start)
    assert isinstance(index, LedgerIndex), "ours are of format 1"
    return runs_of(read_entries(pieces, index.spans(), holder.name, deviations), holder.payload_start)


def runs_of(found: Iterable[Entry], payload_start: int) -> Iterator[EntryRun]:
    """Entries, in order, as rows; a row ends where its block does."""
    lengths: list[int] = []
    first = stored_offset = end = 0
    for entry in found:
        if lengths and (len(lengths) == MAX_RUN_ENTRIES or entry.offset - _FRAME_BYTES != end):
            run = _run(first, payload_start, lengths, stored_offset)
            yield run
            payload_start, lengths = run.payload_end, []
        if not lengths:
            first, stored_offset = entry.entry_id, entry.offset - _FRAME_BYTES
        lengths.append(len(entry.payload))
        end = entry.offset + len(entry.payload)
    if lengths:
        yield _run(first, payload_start, lengths, stored_offset)


def _run(first: int, payload_start: int, lengths: list[int], stored_offset: int) -> EntryRun:
    return EntryRun(
        first_entry_id=first, payload_start=payload_start, lengths=tuple(lengths), stored_offset=stored_offset
    )


def _pieces(storage: ChunkStorage, holder: ObjectRecord) -> Iterator[bytes]:
    for start in range(0, holder.stored_bytes, _STEP_BYTES):
        buffer = bytearray(min(_STEP_BYTES, holder.stored_bytes - start))
        storage.read_into(holder.name, start, memoryview(buffer))
        yield bytes(buffer)
