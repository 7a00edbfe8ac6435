"""The objects beside a ledger's data object: Pulsar's index object, and our copy of the entries' rows.

Both are made from the rows, which locate each entry; so both can be written again when they are gone
(`write_missing`).

Pulsar's names begin with a random UUID and lie at the root of the location, where a Pulsar cluster may keep its own
objects too: the name gives the form, the user metadata gives the owner (`ledger_objects`, `is_ours`).

The journal does not carry the rows: a ledger that a recovery or a replica learns from it has a cold chunk and no rows,
and cannot be read until `EntryRows` restores them from the copy. If the copy is missing or damaged, all of the ledger's
object is read instead, if it is ours.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import chain, islice
from uuid import UUID

from tierfs.base.bytes.checksum import twice
from tierfs.base.bytes.parallel import Meter, OnProgress, unseen
from tierfs.base.words import names, object_names, units
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import PayloadEncoding, SegmentId, SegmentKind, Tier
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import ObjectFile
from tierfs.engine.ledger import keys as object_keys
from tierfs.engine.ledger.blocks import HEADER_BYTES
from tierfs.engine.ledger.index import FIRST_PART_ID, IndexEntry, LedgerIndex
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.keys import Role
from tierfs.engine.ledger.metadata import DigestType, Ensemble, LedgerMetadata, LedgerState
from tierfs.engine.metadata import chains, directories, entries, entries_object
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.entries_object import ENTRIES_PREFIX
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.ledger_records import EntryRun, LedgerRecord
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LEDGERS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction, batches
from tierfs.reading.entry_scan import scan

# Name of a bookie that had the entries: Pulsar's reader requires one and never contacts it.
_BOOKIE = "tierfs:3181"

_COPY = re.compile(rf"{ENTRIES_PREFIX}entries-[0-9]{{1,20}}-e(?P<epoch>[0-9]{{1,20}})-(?P<attempt>[0-9a-f]{{32}})")


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


# First characters of UUIDs: one listing each, so that segments and packs are not listed to find ledgers.
_FIRST = "0123456789abcdef"


def ledger_objects(storage: ChunkStorage, *, expected: bool = True) -> Iterator[StoredObject]:
    """Yield the copies of entries, and the data and index objects of ledgers, of every writer.

    `expected` is False for a store that has no ledger: without a copy of entries, which every offload makes, it has
    offloaded none. The sixteen listings are then skipped: the root of a bucket may be shared, and large.
    """
    for listed in storage.list(ENTRIES_PREFIX):
        expected = True
        yield listed
    for first in _FIRST if expected else "":
        yield from (listed for listed in storage.list(first) if uuid_of(listed.name))


def has_ledgers(txn: ReadTransaction) -> bool:
    """Return whether the store has ledgers that may have objects."""
    return txn.count(LEDGERS.name) > 0


def uuid_of(name: str) -> UUID | None:
    """Return the attempt in the name of a data or index object; None for other names."""
    key = names.ledger_key(name)
    return None if key is None or key.ledger_id is None else key.uuid


def copy_of(name: str) -> tuple[UUID, int] | None:
    """Return the attempt and the epoch in the name of a copy of entries; None for other names."""
    match = _COPY.fullmatch(name)
    epoch = None if match is None else units.decimal(match["epoch"], MAX_EPOCH)
    return None if match is None or epoch is None else (UUID(match["attempt"]), epoch)


def is_of_ledger(name: str) -> bool:
    """Return whether a name is that of an object of a ledger."""
    return name.startswith(ENTRIES_PREFIX) or uuid_of(name) is not None


def is_ours(metadata: Mapping[str, str], store_id: str, epoch: int) -> bool:
    """Return whether an object of a ledger was written by this store, at the latest in this epoch, by its metadata."""
    return metadata.get("store") == store_id and units.decimal(metadata.get("epoch", ""), epoch) is not None


def attempts(txn: ReadTransaction) -> set[UUID]:
    """Return every attempt that a ledger's context names."""
    return {uuid for _, ledger in txn.scan(LEDGERS) if (uuid := ledger.offload.uuid) is not None}


def companions(txn: ReadTransaction) -> dict[str, ObjectRecord]:
    """Return our index objects and copies of entries by name, each with the data object that it belongs to."""
    data_objects: dict[str, ObjectRecord] = {}
    for record in _records(txn):
        if record.index_name and not record.foreign:
            data_objects[record.index_name] = record
        if record.entries_name:
            data_objects[record.entries_name] = record
    return data_objects


def _records(txn: ReadTransaction) -> Iterator[ObjectRecord]:
    """Yield the cold objects of all ledgers."""
    for _, ledger in txn.scan(LEDGERS):
        for chunk in chains.chunks(txn, SegmentId(ledger.segment_id), Tier.COLD):
            if chunk.object_id:
                yield chains.object_of(txn, chunk)


log = logging.getLogger(__name__)

# Rows that one commit writes: some 10 ms.
_RUNS_TOGETHER = 64

# Ledgers per snapshot.
_LEDGERS_TOGETHER = 1000

# Opens a transaction that may write rows; a replica has its own kind.
Write = Callable[[], AbstractContextManager[WriteTransaction]]


class EntryRows:
    """The rows of a store's ledgers, restored from their copies."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, write: Write) -> None:
        self._metadata = metadata
        self._storage = storage
        self._write = write

    def restore_all(self, report: OnProgress = unseen) -> list[str]:
        """Restore the rows of every ledger that lacks them; return a line per ledger that failed."""
        with self._metadata.read() as txn:
            meter = Meter(report, total_items=txn.count(LEDGERS.name), noun="ledger")

        def ids(_: ReadTransaction, rows: list[tuple[bytes, LedgerRecord]]) -> list[SegmentId]:
            return [SegmentId(record.segment_id) for _, record in rows]

        some = batches(self._metadata.read, LEDGERS, _LEDGERS_TOGETHER, ids)
        return self.restore(meter.each(chain.from_iterable(some), "restoring rows of entries"))

    def restore(self, segment_ids: Iterable[SegmentId]) -> list[str]:
        """Restore the rows of some segments, as `restore_all`; skip those that are not ledgers or have all rows.

        Raises storage errors, except for a missing copy.
        """
        failed = []
        for segment_id in segment_ids:
            with self._metadata.read() as txn:
                segment = directories.segment(txn, segment_id)
                if segment is None or segment.kind is not SegmentKind.LEDGER:
                    continue
                missing = first_missing(txn, segment)
                records = [] if missing is None else list(_records_with_copies(txn, segment))
            if missing is None:
                continue
            try:
                self._restore(segment, records)
            except (NotFound, DataLoss) as exc:
                with self._metadata.read() as txn:
                    name = directories.path_of(txn, segment.parent_id, segment.name)
                log.warning("entries of ledger %s: %s", name, exc)
                failed.append(f"ledger {printable(name)} cannot be read, its entries are unknown: {exc}")
        return failed

    def prepare(self, entry: pb.JournalEntry) -> None:
        """Restore the rows of the objects that a journal entry will link, so that no ledger is opened without them.

        Idempotent. Raises storage errors, except for missing objects: `restore` reports those.
        """
        for change in entry.changes:
            for message in change.cold_link.objects:
                if message.encoding and not self._has(message):
                    with suppress(NotFound, DataLoss):
                        self._put_those_of(OBJECTS.codec.from_message(message))

    def _has(self, message: pb.ObjectRecord) -> bool:
        with self._metadata.read() as txn:
            last = entries.last_run(txn, SegmentId(message.segment_id))
        return last is not None and last.payload_end >= message.payload_start + message.length

    def _restore(self, segment: SegmentRecord, records: list[ObjectRecord]) -> None:
        for record in records:
            self._put_those_of(record)
        with self._metadata.read() as txn:
            missing, count = first_missing(txn, segment), entries.find(txn, segment.id).entries
        if missing is not None and count > entries.MOST_EMPTY_ENTRIES and not records:
            raise DataLoss(f"{count} entries without a byte are more than a ledger can have")
        if missing is not None:
            raise DataLoss(f"the entries end before the payload at {missing}")

    def _put_those_of(self, record: ObjectRecord) -> None:
        """Write the rows of one object, from their copy, or from the object itself."""
        segment_id = SegmentId(record.segment_id)
        try:
            self._put(segment_id, entries_object.decode(self._copy(record), record.entries_name, segment_id))
        except (NotFound, DataLoss) as exc:
            if record.foreign:
                raise DataLoss(f"{exc}; adopt it again") from exc
            if record.encoding is not PayloadEncoding.PULSAR_BLOCK:
                raise
            log.info("%s; reading %s instead", exc, record.name)
            twice(lambda: self._put(segment_id, scan(self._storage, record)))

    def _put(self, segment_id: SegmentId, runs: Iterator[EntryRun]) -> None:
        while some := list(islice(runs, _RUNS_TOGETHER)):
            with self._write() as txn:
                for run in some:
                    entries.put(txn, segment_id, run)

    def _copy(self, record: ObjectRecord) -> ObjectFile:
        if not record.entries_name:
            raise NotFound(f"there is no copy of the entries that {printable(record.name)} holds")
        return ObjectFile(self._storage, self._storage.stat(record.entries_name))


def first_missing(txn: ReadTransaction, segment: SegmentRecord) -> int | None:
    """Return the first payload byte of a cold ledger that no run covers; None when all are covered."""
    last: EntryRun | None = entries.last_run(txn, segment.id)
    end = 0 if last is None else last.payload_end
    cold_end = max((chunk.end_offset for chunk in chains.chunks(txn, segment.id, Tier.COLD)), default=0)
    if end < cold_end:
        return end
    record = entries.find(txn, segment.id)
    return 0 if last is None and record.entries and not record.bytes else None


def _records_with_copies(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ObjectRecord]:
    """Yield the encoded objects of a ledger, one per copy of rows; a copy may cover several objects."""
    seen = set[str]()
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        if chunk.object_id:
            record = chains.object_of(txn, chunk)
            if record.entries_name not in seen:
                seen.add(record.entries_name)
                yield record
