"""Dumps of single segments in the bucket: `dumps/<segment id>-<attempt>`, the metadata of the cold bytes.

An object is a sequence of framed SegmentDump messages, so that reading one takes bounded memory. It is no part of the
journal and stays until a user deletes it.

Load a segment's dump: link its objects again under its name, as long as they are there.

For a segment that was removed by mistake, while the grace period keeps its objects, or whose metadata are damaged.
Crash order: objects looked at, under the lock that keeps the collector from deleting -> one commit that links them,
drops them from the garbage and tells the journal.
"""

from __future__ import annotations

import base64
import logging
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import proved_sums
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.options import contradictions
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.types import ByteRange, LocationId, PayloadEncoding, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, FileSource, StoredObject
from tierfs.engine.chunkstore.sequential_read import ObjectFile, read_steps
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.journal import replay
from tierfs.engine.metadata import (
    archive_place,
    chain_edits,
    chains,
    changes,
    directories,
    empty_ledgers,
    frames,
    policies,
    store_ownership,
    tables,
)
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.record_parts import may_have_length
from tierfs.engine.metadata.records import RECORD_VERSION, ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import GARBAGE, LEDGERS, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering.backup import segment_grammar
from tierfs.tiering.backup.segment_grammar import Contents

log = logging.getLogger(__name__)

DUMPS_PREFIX = "dumps/"

_AGE = "age"
_NAME = re.compile(r"dumps/[0-9]+-[0-9a-f]{32}")
# Changes per framed message end here, half of what one may have.
_PIECE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentDumped:
    """The contents of a segment's dump."""

    segment: str
    object: str
    bytes: int
    """Of the dump itself."""
    cold_bytes: int
    """Of the segment that loading the dump brings back."""
    only_local_bytes: int
    """Of the segment that it does not."""


@dataclass(frozen=True, slots=True, order=True)
class _Age:
    """The order of a segment's dumps, oldest first. Clocks do not count: they are set back now and then."""

    epoch: int
    """Of the store's owner: a later one began where an earlier one had ended."""
    sequence: int
    """Of the newest change that it had made."""
    generation: int
    length: int
    """These two of the segment: its local bytes may have changed since that change."""


def dump_segment(
    metadata: MetadataStore, storage: ChunkStorage, name: str, report: OnProgress = unseen
) -> SegmentDumped:
    """Write the metadata of a segment's cold bytes to the bucket. Raises NotFound, IsDirectory, and the storage's."""
    path, meter = names.join(names.split(name)), Meter(report, noun="record")
    with tempfile.TemporaryFile() as spool:
        written_ms = metadata.clock.now_ms()
        with metadata.read() as txn:
            segment = directories.segment_by_name(txn, path)
            for piece in _pieces(txn, segment, path, written_ms):
                spool.write(frames.frame(piece))
                meter(0, path, len(piece.changes))
        spool.flush()
        described = {
            "store": metadata.store_id,
            "segment": str(segment.id),
            "name": _encoded(path),
            _AGE: _age_text(_age(piece, segment.generation, segment.length)),
            ATTEMPT_KEY: (attempt := new_id()),
        }
        object_name = f"{DUMPS_PREFIX}{segment.id}-{attempt}"
        stored = storage.put(object_name, FileSource(spool.fileno(), object_name), metadata=described)
    return SegmentDumped(
        segment=path,
        object=object_name,
        bytes=stored.length_bytes,
        cold_bytes=segment.cold.bytes,
        only_local_bytes=max(0, segment.range.length_bytes - segment.cold.bytes),
    )


def find_dump(storage: ChunkStorage, store_id: str, wanted: str) -> StoredObject:
    """Return the dump with this object name, or the newest one of the segment with this name. Raises NotFound."""
    if _NAME.fullmatch(wanted):
        return _ours(storage, storage.stat(wanted), store_id)
    path, newest, newest_age = names.join(names.split(wanted)), None, (_Age(-1, 0, 0, 0), "")
    for listed in storage.list(DUMPS_PREFIX):
        if not _NAME.fullmatch(listed.name):
            continue
        stored = storage.stat(listed.name)
        header = _header(storage, stored)
        if header is None or (header.store_id, header.path) != (store_id, path):
            continue
        if (header.age, stored.name) > newest_age:
            newest, newest_age = stored, (header.age, stored.name)
    if newest is None:
        raise NotFound(
            f"the bucket has no backup of {names.printable(wanted)}",
            remedy=f"create one with: tierfs backup --to-bucket {names.printable(wanted)}",
        )
    return newest


def read_dump(storage: ChunkStorage, stored: StoredObject) -> Iterator[pb.SegmentDump]:
    """Yield the messages of a dump, each checked. Raises DataLoss for damage, and what the storage raises."""
    for piece in frames.messages(ObjectFile(storage, stored), stored.name, frames.parse_segment_dump):
        if piece.version > RECORD_VERSION:
            raise DataLoss(f"{stored.name} has format version {piece.version}", remedy="upgrade tierfs")
        yield piece


def _pieces(txn: ReadTransaction, segment: SegmentRecord, path: str, written_ms: int) -> Iterator[pb.SegmentDump]:
    head = pb.SegmentDump(
        version=RECORD_VERSION,
        store_id=txn.store.store_id,
        path=path,
        written_ms=written_ms,
        store_epoch=txn.store.store_epoch,
        sequence=txn.store.next_outbox - 1,
    )
    for some in ranges.groups(changes.segment_state(txn, segment), pb.Change.ByteSize, _PIECE_BYTES):
        piece = pb.SegmentDump(changes=some)
        piece.MergeFrom(head)
        yield piece


def _ours(storage: ChunkStorage, stored: StoredObject, store_id: str) -> StoredObject:
    header = _header(storage, stored)
    if header is None or header.store_id != store_id:
        raise NotFound(f"{stored.name} is the dump of another store's segment")
    return stored


def _header(storage: ChunkStorage, stored: StoredObject) -> _Header | None:
    """Return the header of a dump: its user metadata, or its first message where a copy dropped those."""
    metadata = stored.metadata
    try:
        if "store" in metadata:
            path = base64.urlsafe_b64decode(metadata["name"]).decode()
            return _Header(metadata["store"], path, _Age(*map(int, metadata[_AGE].split("."))))
        first = next(read_dump(storage, stored), None)
    except (KeyError, TypeError, ValueError, DataLoss) as exc:
        log.info("%s is not a readable dump: %s", stored.name, exc)
        return None
    if first is None or not first.changes:
        return None
    segment = first.changes[0].segment
    return _Header(first.store_id, first.path, _age(first, segment.generation, segment.length))


@dataclass(frozen=True, slots=True)
class _Header:
    store_id: str
    path: str
    age: _Age


def _age(piece: pb.SegmentDump, generation: int, length: int) -> _Age:
    return _Age(piece.store_epoch, piece.sequence, generation, length)


def _age_text(age: _Age) -> str:
    return f"{age.epoch}.{age.sequence}.{age.generation}.{age.length}"


def _encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode("ascii")


@dataclass(frozen=True, slots=True)
class SegmentRestored:
    """The bytes that a dump gave back."""

    segment: str
    dump: str
    start_offset: int
    length: int
    cold_bytes: int
    lost_bytes: int
    """Of objects that are gone, and of what was not cold when the dump was made."""
    objects: int
    warnings: Sequence[str] = ()
    """What cannot be read all the same, as lines."""


@dataclass(frozen=True, slots=True)
class DumpSource:
    """The places of dumps and objects, and the place of the restored segment."""

    metadata: MetadataStore
    storage: ChunkStorage
    storage_of: Callable[[LocationId], ChunkStorage]


class SegmentRestore:
    """Loads dumps of segments. Used by the holder only, while no garbage is deleted."""

    def __init__(self, source: DumpSource) -> None:
        self._metadata = source.metadata
        self._storage = source.storage
        self._storage_of = source.storage_of

    def restore(self, wanted: str, *, accept_loss: bool, report: OnProgress) -> SegmentRestored:
        """Link the newest dump of a segment, or the one with this object name, under the segment's name.

        Raises AlreadyExists when the name or the segment is there, NotFound without a dump, DataLoss for one that holds
        more than its segment, and when bytes are gone unless `accept_loss`: then they become lost extents, and the
        segment ends with what there is.
        """
        stored = find_dump(self._storage, self._metadata.store_id, wanted)
        dump = self._open(stored)
        if not _NAME.fullmatch(wanted) and dump.path != names.join(names.split(wanted)):
            raise segment_grammar.refused(stored.name, f"it is of segment {dump.path}, but its name is of {wanted}")
        with self._metadata.read() as view:
            store_ownership.require_owner(view.store)
            _require_free(view, dump)
            segment_grammar.require_alone(view, dump)
            next_id = view.store.next_id
        gone = self._gone(dump, report)
        with self._metadata.write() as txn:
            segment_grammar.require_alone(txn, dump, first_id=next_id)
            restored = self._link(txn, stored, dump, gone)
            if restored.lost_bytes and not accept_loss:
                raise _would_lose(restored)
            return restored

    def _open(self, stored: StoredObject) -> Contents:
        """Read all of a dump and check it. Raises DataLoss, and NotFound for another store's."""
        with self._metadata.read() as txn:
            own_location, archive_id = txn.store.cold_location_id, archive_place.id_of(txn)
        dump = segment_grammar.read(read_dump(self._storage, stored), stored.name, own_location, archive_id)
        if dump.head.store_id != self._metadata.store_id:
            raise NotFound(f"{stored.name} is the dump of another store's segment")
        return dump

    def _gone(self, dump: Contents, report: OnProgress) -> frozenset[int]:
        """Return the ids of objects that are not in the bucket any more, or have other bytes."""
        gone, meter = set[int](), Meter(report, dump.segment.cold.bytes, len(dump.objects), "object")
        for record in dump.objects.values():
            if record.id not in dump.shared and not self._is_there(record):
                gone.add(record.id)
            meter(record.length, record.name, 1)
        return frozenset(gone)

    def _is_there(self, record: ObjectRecord) -> bool:
        try:
            stored = self._storage_of(record.location_id).stat(record.name)
        except NotFound:
            return False
        if not may_have_length(record, stored.length_bytes):
            return False
        # Of a ledger's object the checksums cover payloads, which only its entries' rows find: each read proves them.
        return stored.etag == record.etag or record.encoding.is_ledger or self._proves_right(record, stored)

    def _proves_right(self, record: ObjectRecord, stored: StoredObject) -> bool:
        """Return whether a copy, which has another etag, has the bytes that the object was written with."""
        is_compressed = record.encoding is PayloadEncoding.ZSTD_FRAMES
        # The dump has the places of frames: all stored bytes must be the same, not only what they unpack to.
        expected = record.stored_crc32c if is_compressed else record.crc32c
        if expected is None:
            return False
        storage = self._storage_of(record.location_id)
        try:
            proved_sums(lambda: read_steps(storage, stored, 0, record.stored_bytes), expected)
        except (NotFound, DataLoss):
            return False
        return True

    def _link(
        self, txn: WriteTransaction, stored: StoredObject, dump: Contents, gone: frozenset[int]
    ) -> SegmentRestored:
        """Link the segment in one transaction: records, garbage and the journal's changes."""
        _require_free(txn, dump)
        segment = _place(txn, dump)
        for change in (change for piece in read_dump(self._storage, stored) for change in piece.changes):
            if change.HasField("policy"):
                replay.apply(txn, change)
                changes.changed(txn, POLICIES, txn.must_get(POLICIES, tables.u64(segment.id), "the policy"))
            elif change.HasField("ledger"):
                replay.apply(txn, change)
            elif (brought := _objects(change)) is not None and gone.isdisjoint(brought):
                kept = dump.without_shared(change)
                if kept is not None:
                    replay.apply(txn, kept)
        segment = _settle(txn, txn.must_get(SEGMENTS, tables.u64(segment.id), "the segment"))
        try:  # its own policies meet those of another directory
            contradictions.refuse(policies.in_force(txn, segment))
        except InvalidRequest as exc:
            raise InvalidRequest(f"{stored.name} is refused, with nothing changed: {exc}", remedy=exc.remedy) from exc
        objects = _publish(txn, segment, dump.shared)
        return SegmentRestored(
            segment=dump.path,
            dump=stored.name,
            start_offset=segment.start_offset,
            length=segment.length,
            cold_bytes=segment.cold.bytes,
            lost_bytes=dump.segment.length - dump.segment.start_offset - _held_bytes(txn, segment),
            objects=objects,
        )


def _objects(change: pb.Change) -> list[int] | None:
    """Return the ids of the objects that a link, or a change before one, brings along; None for other changes."""
    if change.HasField("checksums"):
        return [change.checksums.object.id]
    return [record.id for record in change.cold_link.objects] if change.HasField("cold_link") else None


def _require_free(txn: ReadTransaction, dump: Contents) -> None:
    if directories.find(txn, dump.path) is not None:
        raise AlreadyExists(
            f"{names.printable(dump.path)} exists", remedy="a backup is restored only if the segment does not exist"
        )
    segment = directories.segment(txn, SegmentId(dump.segment.id))
    if segment is not None and directories.top(txn, segment).removal.due_ms:
        path = names.as_word(directories.top(txn, segment).removal.path)
        raise AlreadyExists(f"the segment of {dump.name} is in the trash", remedy=f"tierfs restore {path}")
    if segment is not None:
        raise AlreadyExists(f"the segment of {dump.name} exists under another name")


def _place(txn: WriteTransaction, dump: Contents) -> SegmentRecord:
    """Make the segment under its name, without chunks, in directories that may have to be made again.

    Readers of the removed one keep their file, and earlier writers are fenced. It appears now: a reader that goes
    through segments in the order of their commits may have passed its id. It continues in a successor that continues
    it, and in no other; the segment before it has another successor by now.
    """
    names.require_unreserved(dump.path)
    parts = names.split(dump.path)
    parent_id = directories.make_directories(txn, parts[:-1])
    message = pb.SegmentRecord()
    message.CopyFrom(dump.segment)
    message.parent_id, message.name, message.inode = parent_id, parts[-1], txn.allocate_id()
    message.commit_id = txn.allocate_id()
    message.writer_epoch += 1
    message.successor_id, message.predecessor_id = _successor_of(txn, message), 0
    replay.apply(txn, pb.Change(segment=message))
    return txn.must_get(SEGMENTS, tables.u64(message.id), "the segment")


def _successor_of(txn: ReadTransaction, message: pb.SegmentRecord) -> int:
    after = directories.segment(txn, SegmentId(message.successor_id)) if message.successor_id else None
    continues = after is not None and (after.parent_id, after.stream, after.first_offset) == (
        message.parent_id,
        message.stream_name or message.name,
        message.length,
    )
    # Ids along a stream ascend: a smaller one would close a circle.
    return message.successor_id if continues and message.successor_id > message.id else 0


def _settle(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Record gaps as lost extents, and end the segment with its last byte, as after a loss (design §6)."""
    chunks = (chunk.range for chunk in chains.chunks(txn, segment.id, Tier.COLD))
    held = list(ranges.intersect(chunks, (segment.range,)))
    end = held[-1].end if held else segment.start_offset
    gaps = list(ranges.gaps(ByteRange(segment.start_offset, end), held))
    segment = Editor(txn, segment).fill_gaps(gaps, journaled=False).segment  # `_publish` names the whole chain
    if gaps or end < segment.length:
        segment = replace(segment, length=end, joins=segment.joins.until(end), recovered_ms=txn.now_ms)
    segment = replace(segment, changed_ms=txn.now_ms)
    txn.put(SEGMENTS, tables.u64(segment.id), segment)
    return segment


def _publish(txn: WriteTransaction, segment: SegmentRecord, shared: Collection[int]) -> int:
    """Tell the journal, and drop what is linked from the garbage; return the number of objects."""
    changes.segment_changed(txn, segment)
    ledger = txn.get(LEDGERS, tables.u64(segment.id))
    if ledger is not None:
        changes.put(txn, LEDGERS, empty_ledgers.not_offloaded(ledger))  # those objects went with the segment
    linked = set[tuple[LocationId, str]]()
    for chunk in list(chains.chunks(txn, segment.id, Tier.COLD)):
        records = (_announced(txn, chunk, shared),) if chunk.object_id else ()
        changes.cold_linked(txn, segment.id, (chunk,), records)
        linked.update((record.location_id, record.name) for record in records)
    for key, row in list(txn.scan(GARBAGE)):
        if row.tier is Tier.COLD and (row.location_id, row.name) in linked:
            txn.delete(GARBAGE.name, key)
    return len(linked)


def _announced(txn: WriteTransaction, chunk: ChunkRecord, shared: Collection[int]) -> ObjectRecord:
    """Return the chunk's object, named by the journal from this change on unless it was already."""
    return chains.object_of(txn, chunk) if chunk.object_id in shared else chain_edits.announce(txn, chunk)


def _held_bytes(txn: ReadTransaction, segment: SegmentRecord) -> int:
    held = (chunk.range for chunk in chains.chunks(txn, segment.id, Tier.COLD) if not chunk.lost)
    return sum(part.length_bytes for part in ranges.intersect(held, (segment.range,)))


def _would_lose(restored: SegmentRestored) -> DataLoss:
    return DataLoss(
        f"{restored.lost_bytes} bytes of {names.printable(restored.segment)} are missing: their objects were deleted "
        "or "
        f"changed, or they were not cold when {restored.dump} was created",
        remedy=f"to restore the other {restored.cold_bytes}: tierfs restore --yes {names.printable(restored.segment)}",
    )
