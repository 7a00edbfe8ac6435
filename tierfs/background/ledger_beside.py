"""What lies beside a ledger's data object: Pulsar's index object, and our copy of the entries' rows.

Both are made from the rows, which say where each entry lies; so both can be written again when they are gone.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from urllib.parse import quote
from uuid import UUID

import tierfs
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.errors import AlreadyExists
from tierfs.ledger import keys as object_keys
from tierfs.ledger.blocks import HEADER_BYTES
from tierfs.ledger.index import FIRST_PART_ID, IndexEntry, LedgerIndex
from tierfs.ledger.index_codec import encode_index
from tierfs.ledger.keys import Role
from tierfs.ledger.metadata import DigestType, Ensemble, LedgerMetadata, LedgerState
from tierfs.metadata import directories, entries, entries_copy, ledgers
from tierfs.metadata.ledger_records import LedgerRecord
from tierfs.metadata.records import ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import PayloadEncoding, SegmentId

_BOOKIE = "tierfs:3181"
"""Pulsar's reader wants to be told of a bookie that had the entries, and never asks it."""

_AS_IT_IS = "".join(map(chr, range(0x21, 0x7F)))
"""Of a managed ledger's name in metadata; the rest is percent-encoded, as topics are in Pulsar's own names."""


def user_metadata(
    txn: ReadTransaction, segment: SegmentRecord, uuid: UUID, role: Role, extra: Mapping[str, str]
) -> dict[str, str]:
    """What a data or index object says of itself: to Pulsar, and, by store, epoch, attempt and name, to tierfs."""
    path = directories.path_of(txn, segment.parent_id, segment.name)
    managed_ledger = quote(path.rpartition("/")[0], safe=_AS_IT_IS)
    said = object_keys.user_metadata(role, managed_ledger, f"tierfs {tierfs.__version__}", "none")
    name = base64.urlsafe_b64encode(path.encode()).decode("ascii")
    return {**said, **extra, **_ours(txn, uuid), "name": name}


def put_copy(metadata: MetadataStore, storage: ChunkStorage, segment_id: SegmentId, name: str, uuid: UUID) -> None:
    """Write the copy of a ledger's rows. Raises what the storage raises."""
    with metadata.read() as txn:
        data = entries_copy.encode(txn.store.store_id, segment_id, entries.runs(txn, segment_id))
        said = _ours(txn, uuid)
    storage.put(name, BufferSource(data), metadata=said)


def put_index(
    metadata: MetadataStore, storage: ChunkStorage, segment: SegmentRecord, name: str, said: Mapping[str, str]
) -> None:
    """Write the index object, which makes the ledger offloaded for Pulsar. Raises what the storage raises."""
    with metadata.read() as txn:
        ledger = ledgers.find(txn, segment.id)
        found, end = blocks(txn, segment.id)
    index = LedgerIndex(description(ledger, segment), end, found)
    storage.put(name, BufferSource(encode_index(index)), metadata=said)


def write_missing(metadata: MetadataStore, storage: ChunkStorage, holder: ObjectRecord) -> None:
    """Write again what is missing beside an object of ours; idempotent. Raises what the storage raises."""
    with metadata.read() as txn:
        segment = directories.segment(txn, SegmentId(holder.segment_id))
        if segment is None:
            return
        uuid = ledgers.find(txn, segment.id).offload.uuid or UUID(holder.attempt)
        said = user_metadata(txn, segment, uuid, Role.INDEX, {})
    if holder.entries_name:
        _unless_there(lambda: put_copy(metadata, storage, segment.id, holder.entries_name, uuid))
    if holder.index_name and not holder.foreign and holder.encoding is PayloadEncoding.PULSAR_BLOCK:
        _unless_there(lambda: put_index(metadata, storage, segment, holder.index_name, said))


def _unless_there(put: Callable[[], None]) -> None:
    try:
        put()
    except AlreadyExists:
        return  # nothing is missing


def blocks(txn: ReadTransaction, segment_id: SegmentId) -> tuple[tuple[IndexEntry, ...], int]:
    """The blocks that the rows lie in, and where the last entry ends: the last block has no padding."""
    found: list[IndexEntry] = []
    end = 0
    frame_bytes = PayloadEncoding.PULSAR_BLOCK.frame_bytes
    for run in entries.runs(txn, segment_id):
        if run.stored_offset != end:
            offset = run.stored_offset - HEADER_BYTES
            found.append(IndexEntry(run.first_entry_id, FIRST_PART_ID + len(found), offset))
        end = run.stored_offset + run.payload_end - run.payload_start + frame_bytes * len(run.lengths)
    return tuple(found), end


def _ours(txn: ReadTransaction, uuid: UUID) -> dict[str, str]:
    """By which an object of a ledger is known to be ours (ledger_listing.is_ours)."""
    return {"store": txn.store.store_id, "epoch": str(txn.store.store_epoch), "attempt": uuid.hex}


def description(ledger: LedgerRecord, segment: SegmentRecord) -> LedgerMetadata:
    """What BookKeeper would say of the ledger: closed, once on a bookie that had all of it."""
    return LedgerMetadata(
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=ledger.bytes,
        last_entry_id=ledger.entries - 1,
        state=LedgerState.CLOSED,
        ensembles=(Ensemble(first_entry_id=0, members=(_BOOKIE,)),),
        digest_type=DigestType.CRC32C,
        created_ms=segment.created_ms,
    )
