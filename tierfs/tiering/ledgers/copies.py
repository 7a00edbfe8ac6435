"""What lies beside a ledger's data object: Pulsar's index object, and our copy of the entries' rows.

Both are made from the rows, which say where each entry lies; so both can be written again when they are gone.

Objects of ledgers in a cold tier: the names that Pulsar finds them by, and our copies of their entries.

Pulsar's names begin with a random UUID and lie beside everything else, and a Pulsar cluster may keep its own in the
same place: a name tells the form, what the object says of itself tells whose it is.

Bringing back the rows of `entries` that a journal does not carry, from their copies in the bucket.

A ledger that a recovery or a replica knows from the journal has a cold chunk and no rows: nobody can read it until it
has them. Where the copy is missing or damaged, all of the ledger's object is read instead, if it is ours.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import islice
from urllib.parse import quote
from uuid import UUID

import tierfs
from tierfs import names
from tierfs.backup.segment import ObjectFile
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject
from tierfs.errors import AlreadyExists, DataLoss, NotFound
from tierfs.ledger import keys as object_keys
from tierfs.ledger.blocks import HEADER_BYTES
from tierfs.ledger.index import FIRST_PART_ID, IndexEntry, LedgerIndex, encode_index
from tierfs.ledger.keys import Role
from tierfs.ledger.metadata import DigestType, Ensemble, LedgerMetadata, LedgerState
from tierfs.metadata import chains, directories, entries, tables
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.entries import ENTRIES_PREFIX
from tierfs.metadata.ledger_and_batch_records import MAX_RUN_ENTRIES, EntryRun, LedgerRecord
from tierfs.metadata.records import ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import LEDGERS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction, batches
from tierfs.names import printable
from tierfs.reading.entries import scan
from tierfs.types import PayloadEncoding, SegmentId, SegmentKind, Tier

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
        data = entries.encode(txn.store.store_id, segment_id, entries.runs(txn, segment_id))
        said = _ours(txn, uuid)
    storage.put(name, BufferSource(data), metadata=said)


def put_index(
    metadata: MetadataStore, storage: ChunkStorage, segment: SegmentRecord, name: str, said: Mapping[str, str]
) -> None:
    """Write the index object, which makes the ledger offloaded for Pulsar. Raises what the storage raises."""
    with metadata.read() as txn:
        ledger = entries.find(txn, segment.id)
        found, end = blocks(txn, segment.id)
    index = LedgerIndex(description(ledger, segment), end, found)
    storage.put(name, BufferSource(encode_index(index)), metadata=said)


def write_missing(metadata: MetadataStore, storage: ChunkStorage, holder: ObjectRecord) -> None:
    """Write again what is missing beside an object of ours; idempotent. Raises what the storage raises."""
    with metadata.read() as txn:
        segment = directories.segment(txn, SegmentId(holder.segment_id))
        if segment is None:
            return
        uuid = entries.find(txn, segment.id).offload.uuid or UUID(holder.attempt)
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


_FIRST = "0123456789abcdef"
"""What a UUID begins with: one listing each, so that segments and packs are not listed for the sake of ledgers."""


def ledger_objects(storage: ChunkStorage, *, expected: bool = True) -> Iterator[StoredObject]:
    """Copies of entries, and data and index objects of ledgers, whoever wrote them.

    `expected` is False for a store that has no ledger: without a copy of entries, which every offload makes, it
    offloaded none. The sixteen listings are then left out: the root of a bucket may be shared, and large.
    """
    for listed in storage.list(ENTRIES_PREFIX):
        expected = True
        yield listed
    for first in _FIRST if expected else "":
        yield from (listed for listed in storage.list(first) if uuid_of(listed.name))


def has_ledgers(txn: ReadTransaction) -> bool:
    """Whether the store has ledgers that may have objects."""
    return txn.count(LEDGERS.name) > 0


def uuid_of(name: str) -> UUID | None:
    """The attempt in the name of a data or index object; None for other names."""
    key = names.ledger_key(name)
    return None if key is None or key.ledger_id is None else key.uuid


def is_of_ledger(name: str) -> bool:
    """Whether an object has the name of a ledger's."""
    return name.startswith(ENTRIES_PREFIX) or uuid_of(name) is not None


def is_ours(metadata: Mapping[str, str], store_id: str, epoch: int) -> bool:
    """Whether an object of a ledger says that this store wrote it, and no owner after this one."""
    said = metadata.get("epoch", "")
    return metadata.get("store") == store_id and said.isascii() and said.isdigit() and int(said) <= epoch


def attempts(txn: ReadTransaction) -> set[UUID]:
    """Every attempt that a ledger's context names."""
    return {uuid for _, ledger in txn.scan(LEDGERS) if (uuid := ledger.offload.uuid) is not None}


def companions(txn: ReadTransaction) -> dict[str, ObjectRecord]:
    """Names of our objects that belong to another one, and that one: index objects and copies of entries."""
    found: dict[str, ObjectRecord] = {}
    for holder in _holders(txn):
        if holder.index_name and not holder.foreign:
            found[holder.index_name] = holder
        if holder.entries_name:
            found[holder.entries_name] = holder
    return found


def _holders(txn: ReadTransaction) -> Iterator[ObjectRecord]:
    """The cold objects of all ledgers."""
    for _, ledger in txn.scan(LEDGERS):
        for chunk in chains.chunks(txn, SegmentId(ledger.segment_id), Tier.COLD):
            if chunk.object_id:
                yield chains.object_of(txn, chunk)


log = logging.getLogger(__name__)

_RUNS_TOGETHER = 64
"""Rows that one commit writes: some 10 ms."""

_MOST_EMPTY_ENTRIES = 1 << 30
"""Of a ledger without a byte: whoever can write to the bucket chose the number (a guess)."""

_LEDGERS_TOGETHER = 1000
"""Looked at in one snapshot."""

Write = Callable[[], AbstractContextManager[WriteTransaction]]
"""Opens a transaction that may write rows: another one in a replica."""


class EntryRows:
    """Rows of one store."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, write: Write) -> None:
        self._metadata = metadata
        self._storage = storage
        self._write = write

    def restore_all(self) -> list[str]:
        """Bring back the rows of every ledger that lacks them; returns what could not be, a line per ledger."""

        def ids(_: ReadTransaction, rows: list[tuple[bytes, LedgerRecord]]) -> list[SegmentId]:
            return [SegmentId(record.segment_id) for _, record in rows]

        some = batches(self._metadata.read, LEDGERS, _LEDGERS_TOGETHER, ids)
        return [line for segment_ids in some for line in self.restore(segment_ids)]

    def restore(self, segment_ids: Iterable[SegmentId]) -> list[str]:
        """As `restore_all`, of some segments; those that are no ledgers, or have all rows, are left alone.

        Raises what the storage raises, but for a copy that is not there.
        """
        failed = []
        for segment_id in segment_ids:
            with self._metadata.read() as txn:
                segment = directories.segment(txn, segment_id)
                if segment is None or segment.kind is not SegmentKind.LEDGER:
                    continue
                missing = first_missing(txn, segment)
                holders = [] if missing is None else list(_copy_holders(txn, segment))
            if missing is None:
                continue
            try:
                self._restore(segment, holders)
            except (NotFound, DataLoss) as exc:
                with self._metadata.read() as txn:
                    name = directories.path_of(txn, segment.parent_id, segment.name)
                log.warning("entries of ledger %s: %s", name, exc)
                failed.append(f"ledger {printable(name)} cannot be read, its entries are not known: {exc}")
        return failed

    def prepare(self, entry: pb.JournalEntry) -> None:
        """Have the rows of what an entry of the journal is about to link, so that nobody opens a ledger without them.

        Idempotent. Raises what the storage raises, but for objects that are not there: `restore` tells of those.
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

    def _restore(self, segment: SegmentRecord, holders: list[ObjectRecord]) -> None:
        if not holders:
            self._put_empty(segment)
        for holder in holders:
            self._put_those_of(holder)
        with self._metadata.read() as txn:
            missing = first_missing(txn, segment)
        if missing is not None:
            raise DataLoss(f"they end before the payload at {missing}")

    def _put_those_of(self, holder: ObjectRecord) -> None:
        """The rows of one object, from their copy, or found by reading it."""
        segment_id = SegmentId(holder.segment_id)
        try:
            self._put(segment_id, entries.decode(self._copy(holder), holder.entries_name, segment_id))
        except (NotFound, DataLoss) as exc:
            if holder.foreign:
                raise DataLoss(f"{exc}; adopt it again") from exc
            if holder.encoding is not PayloadEncoding.PULSAR_BLOCK:
                raise
            log.info("%s, so %s is read", exc, holder.name)
            self._put(segment_id, scan(self._storage, holder))

    def _put(self, segment_id: SegmentId, runs: Iterator[EntryRun]) -> None:
        while some := list(islice(runs, _RUNS_TOGETHER)):
            with self._write() as txn:
                for run in some:
                    entries.put(txn, segment_id, run)

    def _copy(self, holder: ObjectRecord) -> ObjectFile:
        if not holder.entries_name:
            raise NotFound(f"there is no copy of the entries that {printable(holder.name)} holds")
        return ObjectFile(self._storage, self._storage.stat(holder.entries_name))

    def _put_empty(self, segment: SegmentRecord) -> None:
        """Entries without a byte need no object."""
        with self._metadata.read() as txn:
            count = entries.find(txn, segment.id).entries
        if count > _MOST_EMPTY_ENTRIES:
            raise DataLoss(f"{count} entries without a byte are more than a ledger can have")
        whole = EntryRun(lengths=(0,) * MAX_RUN_ENTRIES)
        runs = (replace(whole, first_entry_id=first) for first in range(0, count, MAX_RUN_ENTRIES))
        self._put(segment.id, (replace(run, lengths=run.lengths[: count - run.first_entry_id]) for run in runs))


def first_missing(txn: ReadTransaction, segment: SegmentRecord) -> int | None:
    """The first payload byte of a cold ledger that no run tells of; None when there is none."""
    last: EntryRun | None = entries.last_run(txn, segment.id)
    end = 0 if last is None else last.payload_end
    cold_end = max((chunk.end_offset for chunk in chains.chunks(txn, segment.id, Tier.COLD)), default=0)
    if end < cold_end:
        return end
    record = entries.find(txn, segment.id)
    has_none = last is None and record.entries > 0 and not record.bytes
    return 0 if has_none and txn.get(LEDGERS, tables.u64(segment.id)) is not None else None


def _copy_holders(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ObjectRecord]:
    """The encoded objects of a ledger, each once; one copy may tell of several."""
    seen = set[str]()
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        if chunk.object_id:
            holder = chains.object_of(txn, chunk)
            if holder.entries_name not in seen:
                seen.add(holder.entries_name)
                yield holder
