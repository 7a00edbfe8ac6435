"""The objects beside a ledger's data object: Pulsar's index object, and our copy of the entries' rows.

Both are made from the rows, which locate each entry; so both can be written again when they are gone
(`write_missing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from tierfs.base.words import object_names
from tierfs.base.words.errors import AlreadyExists
from tierfs.base.words.types import PayloadEncoding, SegmentId
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.ledger import keys as object_keys
from tierfs.engine.ledger.blocks import HEADER_BYTES
from tierfs.engine.ledger.index import FIRST_PART_ID, IndexEntry, LedgerIndex
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.keys import Role
from tierfs.engine.ledger.metadata import DigestType, Ensemble, LedgerMetadata, LedgerState
from tierfs.engine.metadata import directories, entries, entries_object
from tierfs.engine.metadata.ledger_records import EntryRun, LedgerRecord
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction

# Name of a bookie that had the entries: Pulsar's reader requires one and never contacts it.
_BOOKIE = "tierfs:3181"


def user_metadata(
    txn: ReadTransaction, segment: SegmentRecord, uuid: UUID, role: Role, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the user metadata of a data or index object: Pulsar's, and store, epoch, attempt and name for tierfs."""
    path = directories.path_of(txn, segment.parent_id, segment.name)
    return object_keys.tierfs_metadata(role, path, {**extra, **_ours(txn, uuid)})


def put_copy(
    metadata: MetadataStore,
    storage: ChunkStorage,
    segment_id: SegmentId,
    name: str,
    uuid: UUID,
    *,
    owned: bool,
    runs: Iterable[EntryRun] | None = None,
) -> None:
    """Write the copy of a ledger's rows; with its name if its other objects are `owned` too. Raises storage errors.

    `runs`: rows that are not in the metadata yet, of new objects; the rows before them are in other copies.
    """
    with metadata.read() as txn:
        segment = directories.segment(txn, segment_id) if owned else None
        path = "" if segment is None else directories.path_of(txn, segment.parent_id, segment.name)
        data = entries_object.encode(
            txn.store.store_id, segment_id, entries.runs(txn, segment_id) if runs is None else runs, path
        )
        owner = _ours(txn, uuid)
    storage.put(name, BufferSource(data), metadata=owner)


def put_index(
    metadata: MetadataStore,
    storage: ChunkStorage,
    segment: SegmentRecord,
    name: str,
    object_metadata: Mapping[str, str],
) -> None:
    """Write the index object, with which the ledger is offloaded for Pulsar. Raises storage errors."""
    with metadata.read() as txn:
        ledger = entries.find(txn, segment.id)
        placed, end = blocks(txn, segment.id)
    index = LedgerIndex(description(ledger, segment), end, placed)
    storage.put(name, BufferSource(encode_index(index)), metadata=object_metadata)


def write_missing(metadata: MetadataStore, storage: ChunkStorage, record: ObjectRecord) -> None:
    """Write the missing objects beside a data object of ours again; idempotent. Raises storage errors."""
    with metadata.read() as txn:
        segment = directories.segment(txn, SegmentId(record.segment_id))
        if segment is None:
            return
        uuid = entries.find(txn, segment.id).offload.uuid or UUID(record.attempt)
        for_index = user_metadata(txn, segment, uuid, Role.INDEX, {})
    for name in filter(None, (record.entries_name, "" if record.foreign else record.index_name)):
        object_names.require_ours(name)
    if record.entries_name:
        owned = not record.foreign
        _unless_there(lambda: put_copy(metadata, storage, segment.id, record.entries_name, uuid, owned=owned))
    if record.index_name and not record.foreign and record.encoding is PayloadEncoding.PULSAR_BLOCK:
        _unless_there(lambda: put_index(metadata, storage, segment, record.index_name, for_index))


def _unless_there(put: Callable[[], None]) -> None:
    try:
        put()
    except AlreadyExists:
        return  # it is not missing


def blocks(txn: ReadTransaction, segment_id: SegmentId) -> tuple[tuple[IndexEntry, ...], int]:
    """Return the blocks that the rows lie in, and the end of the last entry: the last block has no padding."""
    placed: list[IndexEntry] = []
    end = 0
    frame_bytes = PayloadEncoding.PULSAR_BLOCK.frame_bytes
    for run in entries.runs(txn, segment_id):
        if run.stored_offset != end:
            offset = run.stored_offset - HEADER_BYTES
            placed.append(IndexEntry(run.first_entry_id, FIRST_PART_ID + len(placed), offset))
        end = run.stored_offset + run.payload_end - run.payload_start + frame_bytes * len(run.lengths)
    return tuple(placed), end


def _ours(txn: ReadTransaction, uuid: UUID) -> dict[str, str]:
    """Return the metadata that mark an object of a ledger as ours (`is_ours`)."""
    return {"store": txn.store.store_id, "epoch": str(txn.store.store_epoch), "attempt": uuid.hex}


def description(ledger: LedgerRecord, segment: SegmentRecord) -> LedgerMetadata:
    """Return BookKeeper's metadata of the ledger: closed, with one bookie that had all of it."""
    return closed_metadata(ledger.bytes, ledger.entries, segment.created_ms)


def closed_metadata(payload_bytes: int, entries: int, created_ms: int) -> LedgerMetadata:
    """Return the same of any closed ledger, by the bytes of its payloads and their number."""
    return LedgerMetadata(
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=payload_bytes,
        last_entry_id=entries - 1,
        state=LedgerState.CLOSED,
        ensembles=(Ensemble(first_entry_id=0, members=(_BOOKIE,)),),
        digest_type=DigestType.CRC32C,
        created_ms=created_ms,
    )
