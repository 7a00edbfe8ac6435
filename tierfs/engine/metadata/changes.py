"""Changes, journal entries and checkpoints: the bucket's ordered log of metadata (design §6).

Changes are upserts of whole records in the bucket's view, which excludes the local tier, so replaying one twice is
harmless. `frames` makes the journal's objects of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from tierfs.base.bytes import ranges
from tierfs.base.words.types import ObjectId, PayloadEncoding, SegmentId, SegmentKind, Tier
from tierfs.engine.metadata import chains, checksums, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import (
    RECORD_VERSION,
    ChunkRecord,
    LocationRecord,
    ObjectRecord,
    Record,
    SegmentRecord,
    StoreRecord,
)
from tierfs.engine.metadata.tables import (
    CHECKSUMS,
    CHUNKS,
    DIRECTORIES,
    GARBAGE,
    LEDGERS,
    LOCATIONS,
    OBJECTS,
    OUTBOX_NAME,
    POLICIES,
    SEGMENTS,
    Table,
)
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

R = TypeVar("R", bound=Record)


# A link carries the checksums (2.6 MiB) of objects up to this size: an entry of 4 MiB with it stays below a reader's
# limit.
_LINK_OBJECT_BYTES = 80 * 1024**3

# A row of a compressed object may have sixteen times the bytes of a plain one's: 2048 frames beside 256 checksums.
_COMPRESSED_ROW = 16

# Checksum runs per change, for those that do not fit into their link.
_RUNS_BYTES = 2 * 1024**2


# Some 300 KB of records: far below the 4 MiB at which an entry ends; a change cannot be split across entries.
CHUNKS_PER_CHANGE = 5000

# Segments that one change links to a pack: some 200 KB, with the longest names 700 KB.
PACKED_PER_CHANGE = 1000


# Fields of a segment that stay on this host: its local chunks, its writer, and the owner's view in a replica.
_LOCAL_FIELDS = ("local", "active", "resumable", "writer", "owner_view")


def queue(txn: WriteTransaction, change: pb.Change) -> int:
    """Queue a change for the journal; return its sequence."""
    return txn.add_to_outbox(change.SerializeToString(deterministic=True))


def put_segment(txn: WriteTransaction, segment: SegmentRecord) -> int:
    """Write a segment and journal it; return the change's sequence."""
    return queue(txn, pb.Change(segment=_put_segment(txn, segment)))


def rewrite(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Write and journal a segment that changes now, and notify its readers; return it."""
    changed = replace(segment, changed_ms=txn.now_ms)
    put_segment(txn, changed)
    txn.touch(inode=changed.inode, segment_id=changed.id)
    return changed


def segment_changed(txn: WriteTransaction, segment: SegmentRecord) -> int:
    """Journal a segment that was created, sealed or changed; return the change's sequence."""
    return queue(txn, pb.Change(segment=_bucket_view(segment)))


def _put_segment(txn: WriteTransaction, segment: SegmentRecord) -> pb.SegmentRecord:
    """Write a segment; return its bucket view, as one encoding serves both."""
    segment.check()
    message: pb.SegmentRecord = SEGMENTS.codec.to_message(segment)  # type: ignore[assignment]
    txn.put_raw(SEGMENTS.name, tables.u64(segment.id), message.SerializeToString(deterministic=True))
    return _without_local(message)


def _bucket_view(segment: SegmentRecord) -> pb.SegmentRecord:
    return _without_local(SEGMENTS.codec.to_message(segment))  # type: ignore[arg-type]


def _without_local(message: pb.SegmentRecord) -> pb.SegmentRecord:
    for name in _LOCAL_FIELDS:
        message.ClearField(name)
    return message


def put(txn: WriteTransaction, table: Table[R], record: R) -> int:
    """Write a record that the journal has as it is, and journal it; return the change's sequence."""
    txn.put(table, table.key(record), record)
    return changed(txn, table, record)


def changed(txn: WriteTransaction, table: Table[R], record: R) -> int:
    """Journal a record of such a table that was written; return the change's sequence."""
    return queue(txn, _change_of(table, record))


def _change_of(table: Table[R], record: R) -> pb.Change:
    change: dict[str, Any] = {table.change: table.codec.to_message(record)}
    return pb.Change(**change)


def end_archive(txn: WriteTransaction, place: LocationRecord) -> None:
    """Delete the record of an archive place that nothing is in, and journal that it is none any more."""
    txn.delete(LOCATIONS.name, tables.u32(place.id))
    changed(txn, LOCATIONS, replace(place, archive=False))


def move_object(txn: WriteTransaction, record: ObjectRecord) -> int:
    """Write and journal another name, etag and archive class of an object; return the change's sequence.

    Its chunks and checksums name it by its id, and stay.
    """
    sequence = txn.store.next_outbox
    moved = replace(record, linked_sequence=sequence)
    txn.put(OBJECTS, tables.u64(moved.id), moved)
    txn.update_store(object_moves=txn.store.object_moves + 1)
    return queue(txn, pb.Change(object_moved=OBJECTS.codec.to_message(moved)))  # type: ignore[arg-type]


def segment_removed(txn: WriteTransaction, segment_id: SegmentId) -> int:
    """Journal that a segment was deleted."""
    return queue(txn, pb.Change(segment_removed=segment_id))


def directory_removed(txn: WriteTransaction, directory_id: int) -> int:
    """Journal that a directory was removed."""
    return queue(txn, pb.Change(directory_removed=directory_id))


def owner_begins(txn: WriteTransaction, host: str) -> int:
    """Journal that this store starts to own the bucket with its epoch."""
    return queue(txn, _owner_begins(txn.store, txn.store.store_epoch, host, txn.now_ms))


def takeover_entry(
    store: StoreRecord, epoch: int, attempt: str, location: LocationRecord, host: str, now_ms: int
) -> pb.JournalEntry:
    """Return the next slot's entry, with which an owner of another epoch begins; nothing is queued."""
    first, begins = store.journal.published_sequence + 1, _owner_begins(store, epoch, host, now_ms)
    rows = list(enumerate((begins, _change_of(LOCATIONS, location)), first))
    return _entry(replace(store, store_epoch=epoch), store.journal.next_slot, first, first + 1, attempt, rows)


def _owner_begins(store: StoreRecord, epoch: int, host: str, now_ms: int) -> pb.Change:
    body = pb.OwnerBegins(store_epoch=epoch, store_id=store.store_id, wall_ms=now_ms, host=host)
    return pb.Change(owner_begins=body)


def cold_linked(
    txn: WriteTransaction, segment_id: SegmentId, chunks: Sequence[ChunkRecord], objects: Sequence[ObjectRecord]
) -> int:
    """Journal cold chunks that were linked, with their objects and checksum runs; return the sequence of the link.

    Checksums that are too many for one change precede it in changes of their own, so that a journal that ends in
    between links nothing without them.
    """
    first = sequence = txn.store.next_outbox
    for change in _link_changes(txn, segment_id, chunks, objects):
        sequence = queue(txn, change)
    if sequence > first:  # local copies and replaced objects are kept until the link itself is published
        for record in objects:
            row = txn.get(OBJECTS, tables.u64(record.id))
            if row is not None:
                txn.put(OBJECTS, tables.u64(row.id), replace(row, linked_sequence=sequence))
    return sequence


def cold_relinked(txn: WriteTransaction, segment_id: SegmentId, chunks: Sequence[pb.ChunkRecord]) -> None:
    """Journal cold chunks, already encoded, that moved from another segment; the journal has their objects."""
    for first in range(0, len(chunks), CHUNKS_PER_CHANGE):
        part = chunks[first : first + CHUNKS_PER_CHANGE]
        queue(txn, pb.Change(cold_link=pb.ColdLink(segment_id=segment_id, chunks=part)))


def link_pack(
    txn: WriteTransaction,
    pack: ObjectRecord,
    linked: Sequence[tuple[SegmentRecord, ChunkRecord]],
    written: Sequence[tuple[pb.SegmentRecord, pb.ChunkRecord]] = (),
) -> int:
    """Write and journal at most PACKED_PER_CHANGE segments of which a chunk was linked to a pack.

    `written` are the messages of further ones, whose rows are written.
    """
    described = OBJECTS.codec.to_message(pack)
    message = pb.PackLink(object=described, checksums=_runs_of(txn, pack.id))  # type: ignore[arg-type]
    both = [(_put_segment(txn, segment), CHUNKS.codec.to_message(chunk)) for segment, chunk in linked]
    for segment, chunk in [*written, *both]:
        message.segments.append(_without_local(segment))
        message.links.add(segment_id=segment.id).chunks.append(chunk)  # type: ignore[arg-type]
    return queue(txn, pb.Change(pack_link=message))


def cold_unlinked(txn: WriteTransaction, segment_id: SegmentId, start_offsets: Sequence[int]) -> int:
    """Journal cold chunks that were unlinked; return the last change's sequence, 0 without chunks."""
    sequence = 0
    for first in range(0, len(start_offsets), CHUNKS_PER_CHANGE):
        part = start_offsets[first : first + CHUNKS_PER_CHANGE]
        sequence = queue(txn, pb.Change(cold_unlink=pb.ColdUnlink(segment_id=segment_id, start_offsets=part)))
    return sequence


def outbox(txn: ReadTransaction, after: int) -> Iterator[tuple[int, bytes]]:
    """Yield changes not yet known to be in the journal: sequence and serialized Change."""
    for key, data in txn.scan_raw(OUTBOX_NAME, tables.u64(after + 1)):
        yield tables.read_u64(key), data


def queued_objects(txn: ReadTransaction, first: int) -> Iterator[ObjectRecord]:
    """Yield the objects that changes from sequence `first` on link or move, as far as these wait for the journal."""
    for _, data in outbox(txn, first - 1):
        change = pb.Change.FromString(data)
        linked = list(change.cold_link.objects)
        linked += [change.pack_link.object] if change.HasField("pack_link") else []
        linked += [change.object_moved] if change.HasField("object_moved") else []
        yield from map(OBJECTS.codec.from_message, linked)


def entry_of(txn: ReadTransaction, slot: int, first: int, last: int, attempt: str) -> pb.JournalEntry:
    """Return the journal entry for a range of outbox rows. The same arguments always give the same changes."""
    rows = islice(outbox(txn, first - 1), last + 1 - first)
    parsed = [(sequence, pb.Change.FromString(data)) for sequence, data in rows]
    return _entry(txn.store, slot, first, last, attempt, parsed)


def _entry(
    store: StoreRecord, slot: int, first: int, last: int, attempt: str, rows: Iterable[tuple[int, pb.Change]]
) -> pb.JournalEntry:
    entry = pb.JournalEntry(
        version=RECORD_VERSION,
        store_id=store.store_id,
        store_epoch=store.store_epoch,
        slot=slot,
        attempt=attempt,
        first_sequence=first,
        last_sequence=last,
        written_ms=store.trusted_wall_ms,
    )
    for sequence, change in rows:
        change.sequence = sequence
        entry.changes.append(change)
    return entry


def state_changes(txn: ReadTransaction) -> Iterator[pb.Change]:
    """Yield the whole state of the bucket's metadata as changes without sequence: the contents of a checkpoint."""
    tables_in_order: tuple[Table[Any], ...] = (LOCATIONS, DIRECTORIES, POLICIES)
    for table in tables_in_order:
        yield from (_change_of(table, record) for _, record in txn.scan(table))
    packs = set[ObjectId]()
    for _, segment in txn.scan(SEGMENTS):
        yield pb.Change(segment=_bucket_view(segment))
        yield from _ledger_state(txn, segment)
        yield from _cold_chain(txn, segment, packs)
    from tierfs.engine.metadata import batches

    yield from batches.state(txn)
    for _, garbage in txn.scan(GARBAGE):
        if garbage.tier is Tier.COLD:
            yield _change_of(GARBAGE, garbage)


def segment_state(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[pb.Change]:
    """Yield one segment as changes without sequence: its record, its own policy, its cold chain."""
    yield pb.Change(segment=_bucket_view(segment))
    policy = txn.get(POLICIES, tables.u64(segment.id))
    if policy is not None:
        yield _change_of(POLICIES, policy)
    yield from _ledger_state(txn, segment)
    yield from _cold_chain(txn, segment, set())


def _ledger_state(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[pb.Change]:
    ledger = txn.get(LEDGERS, tables.u64(segment.id)) if segment.kind is SegmentKind.LEDGER else None
    if ledger is not None:
        yield _change_of(LEDGERS, ledger)


def _cold_chain(txn: ReadTransaction, segment: SegmentRecord, packs: set[ObjectId]) -> Iterator[pb.Change]:
    """Yield the links of a chain; a pack accompanies only the first of its chunks, and is then added to `packs`."""
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        described = not chunk.object_id or chunk.object_id in packs
        objects = () if described else (chains.object_of(txn, chunk),)
        packs.update(record.id for record in objects if record.packed)
        yield from _link_changes(txn, segment.id, (chunk,), objects)


def _link_changes(
    txn: ReadTransaction, segment_id: SegmentId, chunks: Iterable[ChunkRecord], objects: Sequence[ObjectRecord]
) -> Iterator[pb.Change]:
    """Yield checksums that do not fit into the link, then the link."""
    message = pb.ColdLink(segment_id=segment_id)
    message.chunks.extend(CHUNKS.codec.to_message(chunk) for chunk in chunks)  # type: ignore[misc]
    message.objects.extend(OBJECTS.codec.to_message(record) for record in objects)  # type: ignore[misc]
    if sum(record.length * _row_factor(record) for record in objects) > _LINK_OBJECT_BYTES:
        for described in message.objects:
            for some in ranges.groups(_runs_of(txn, described.id), pb.ChecksumRun.ByteSize, _RUNS_BYTES):
                yield pb.Change(checksums=pb.ObjectChecksums(object=described, runs=some))
    else:
        for described in message.objects:
            message.checksums.extend(_runs_of(txn, described.id))
    yield pb.Change(cold_link=message)


def _row_factor(record: ObjectRecord) -> int:
    return _COMPRESSED_ROW if record.encoding is PayloadEncoding.ZSTD_FRAMES else 1


def _runs_of(txn: ReadTransaction, object_id: int) -> Iterator[pb.ChecksumRun]:
    for run in checksums.runs(txn, ObjectId(object_id)):
        yield CHECKSUMS.codec.to_message(replace(run, object_id=object_id))  # type: ignore[misc]
