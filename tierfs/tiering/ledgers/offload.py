"""LedgerOffloader: make Pulsar's data and index objects of a closed ledger, and link them as its cold chunk (PIP-17).

Crash order as in objects.py: the attempt is recorded with the intents, the data object is followed by our copy of its
entries and by the index object, and the commit that links the chunk completes the attempt. A ledger without its index
object is not offloaded. An attempt abandons the objects of an earlier one at the same ledger.

A ledger whose entries are all empty has no chunk to link: its commit completes the attempt alone, which then names the
two objects (engine/metadata/empty_ledgers.py). Its entries need no copy, as its record has their number.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from uuid import UUID

import tierfs
from tierfs.base.bytes import ranges
from tierfs.base.bytes.byte_times import ByteTimes
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import MIB, AttemptId, ChunkState, ObjectId, PayloadEncoding, SegmentId, SegmentKind, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject, Uploads
from tierfs.engine.ledger import keys as object_keys
from tierfs.engine.ledger.blocks import FORMAT_1, HEADER_BYTES, BlockPlan, plan_blocks
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.keys import Role
from tierfs.engine.metadata import chains, changes, chunk_times, directories, empty_ledgers, entries, entries_object
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.entries import StoredEntries
from tierfs.engine.metadata.ledger_records import MAX_RUN_ENTRIES, OUR_DRIVER, LedgerRecord, OffloadProgress
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import ledgers as ledger_attempts
from tierfs.tiering import objects
from tierfs.tiering.ledgers import copies
from tierfs.tiering.ledgers.source import LedgerSource
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.offload import source_chunk
from tierfs.tiering.offload_source import ChunkSource, DamagedChunk

# Size of a block: Pulsar's default.
BLOCK_BYTES = 64 * MIB

# Rows of entries that one commit rewrites: some 10 ms. A block of tiny entries has hundreds of rows.
_PLACED_AT_ONCE = 64


class LedgerOffloader:
    """Executor of ledger offloads. Thread-safe; one attempt per ledger at a time, as recorded in its context."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, cold: ColdTier, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._metadata = metadata
        self._files = files
        self._cold = cold
        self._block_bytes = block_bytes

    def offload(self, segment_id: SegmentId, uuid: UUID, extra_metadata: Mapping[str, str] | None = None) -> int:
        """Make a closed ledger cold; return its payload bytes, 0 if it was cold already.

        Raises InvalidRequest for a ledger that is open or empty, or has an entry that fits into no block, before
        anything is uploaded; ChunksMoved, DataLoss, Fenced, WrongColdTier, and storage errors. The local bytes stay
        in every case.
        """
        self._cold.require_ours()
        with self._metadata.read() as txn:
            segment = _closed(txn, segment_id)
            if _is_cold(txn, segment):
                return 0
            lengths = _lengths(txn, segment)
            sources = tuple(source_chunk(txn, chunk, record) for chunk, record in _local(txn, segment))
            block_bytes = self._block_bytes_of(txn, segment)
        plans = plan_blocks(lengths, block_bytes)
        with closing(ChunkSource(self._files, sources)) as payloads:
            source = LedgerSource(payloads, lengths, plans)
            try:
                extra = object_keys.extra_metadata(extra_metadata or {})
                kind = LedgerRecipe if segment.length else EmptyLedgerRecipe
                recipe = kind(self._metadata, segment, uuid, payloads, source, extra)
                self._end_earlier(segment_id)
                objects.make(self._metadata, self._cold, recipe)
            except DamagedChunk as exc:
                raise exc.cause from exc
        return segment.length

    def _block_bytes_of(self, txn: ReadTransaction, segment: SegmentRecord) -> int:
        """Return the block size: that of a remaining cold form, if any, as the rows of entries locate both."""
        if not segment.cold.count:
            return self._block_bytes
        placed, end = copies.blocks(txn, segment.id)
        return placed[1].offset - placed[0].offset if len(placed) > 1 else max(self._block_bytes, end)

    def delete_offloaded(self, segment_id: SegmentId, uuid: UUID) -> None:
        """Unlink the cold form of a ledger and delete its objects; idempotent.

        Raises NotFound if `uuid` is not the ledger's attempt, Conflict if its objects are the only good copy of bytes.
        """
        with self._metadata.write() as txn:
            segment = directories.segment_by_id(txn, segment_id)
            ledger = entries.find(txn, segment_id)
            if ledger.offload.uuid is None:
                return
            if ledger.offload.uuid != uuid:
                raise NotFound(f"{directories.full_name(txn, segment)} was not offloaded as {uuid}")
            good = (chunk.range for chunk in chains.chunks(txn, segment_id, Tier.LOCAL) if _is_good(chunk))
            if segment.cold.count and ranges.reach(0, good) < segment.length:
                path = directories.path_of(txn, segment.parent_id, segment.name)
                word = as_word(path)
                raise Conflict(
                    f"{printable(path)}: its objects are the only valid copy of some bytes",
                    remedy=f"check the local copy: tierfs check {word}; or delete the ledger: tierfs rm {word}",
                )
            sequence = entries.put_ledger(txn, replace(ledger, offload=OffloadProgress()))
            self._unlink(txn, segment, ledger, sequence)

    def _unlink(self, txn: WriteTransaction, segment: SegmentRecord, ledger: LedgerRecord, sequence: int) -> None:
        chunks = list(chains.chunks(txn, segment.id, Tier.COLD))
        if not chunks:
            ledger_attempts.discard(txn, ledger, due_ms=txn.now_ms, after_sequence=sequence)
            return
        sequence = changes.cold_unlinked(txn, segment.id, [chunk.start_offset for chunk in chunks])
        editor = Editor(txn, segment).remove(Tier.COLD, chunks, due_ms=txn.now_ms, after_sequence=sequence)
        changes.rewrite(txn, editor.segment)

    def _end_earlier(self, segment_id: SegmentId) -> None:
        """Abandon the objects of an earlier attempt, and the parts of its upload, which are found by its name only."""
        with self._metadata.read() as txn:
            intents = [intent for _, intent in txn.scan(INTENTS) if intent.segment_id == segment_id]
            ledger = entries.find(txn, segment_id)
        for intent in intents:
            objects.abandon_intent(self._metadata, intent)
        uuid, storage = ledger.offload.uuid, self._cold.storage
        if uuid is not None and not ledger.offload.complete and isinstance(storage, Uploads):
            for pending in list(storage.uploads(object_keys.data_key(uuid, ledger.ledger_id))):
                storage.abort_upload(pending)


class LedgerRecipe(objects.Recipe[None]):
    """Recipe for the data object of one attempt at a ledger, with its index object and our copy of its entries."""

    # After another error the outcome of the commit is unknown: the objects stay until the next attempt, or the next
    # holder, finds their intents.
    not_linked = (ChunksMoved, DataLoss, NotFound)

    def __init__(
        self,
        metadata: MetadataStore,
        segment: SegmentRecord,
        uuid: UUID,
        payloads: ChunkSource,
        source: LedgerSource,
        extra_metadata: Mapping[str, str],
    ) -> None:
        """Begin an attempt; reads the blocks that payload chunks share. Raises DamagedChunk."""
        super().__init__(payloads.crc32c())
        self._metadata = metadata
        self._segment = segment
        self._uuid = uuid
        self._payloads = payloads
        self._source = source
        self._extra_metadata = extra_metadata
        self._chunks: tuple[ChunkRecord, ...] = ()
        self._ledger = LedgerRecord(segment_id=segment.id)
        self._object_metadata: Mapping[str, str] = {}
        self._beside: tuple[str, ...] = ()

    def describe(self, txn: WriteTransaction) -> Description:
        """Record the attempt and discard an earlier one. Raises ChunksMoved when the ledger is cold by now."""
        segment = _closed(txn, self._segment.id)
        if _is_cold(txn, segment):
            raise ChunksMoved(f"{directories.full_name(txn, segment)} became cold meanwhile")
        ledger = entries.find(txn, segment.id)
        ledger_attempts.discard(txn, ledger, due_ms=txn.now_ms)
        if not ledger.timestamp_ms:  # closed by a version that did not record it
            ledger = replace(ledger, ledger_id=_ledger_id(segment), entries=entries.count(txn, segment.id))
            ledger = replace(ledger, bytes=segment.length, timestamp_ms=segment.sealed_ms)
        self._ledger = replace(ledger, offload=OffloadProgress.begun(self._uuid, OUR_DRIVER))
        entries.put_ledger(txn, self._ledger)
        self._segment = segment
        self._chunks = tuple(chunk for chunk, _ in _local(txn, segment))
        self._object_metadata = copies.user_metadata(txn, segment, self._uuid, Role.DATA, self._extra_metadata)
        index_name = object_keys.index_key(self._uuid, ledger.ledger_id)
        copy_name = entries_object.object_name(segment.id, txn.store.store_epoch, AttemptId(self._uuid.hex))
        self._beside = index_name, copy_name
        name = object_keys.data_key(self._uuid, ledger.ledger_id)
        return Description(name, self._source.length_bytes, self._object_metadata, segment.id, beside=self._beside)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        """Record each entry's place in the data object, which is not read before the chunk is linked; write it."""
        placed = chain.from_iterable(_stored(plan, self._source.lengths) for plan in self._source.plans)
        while batch := list(islice(placed, _PLACED_AT_ONCE)):
            with self._metadata.write() as txn:
                entries.place(txn, self._segment.id, batch)
        return storage.put(description.name, self._source, metadata=description.metadata)

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Check the framed payloads against our checksums; then write the objects beside it, the index last."""
        grid = self._payloads.verified_grid().grid()
        index_name, copy_name = self._beside
        copies.put_copy(self._metadata, storage, self._segment.id, copy_name, self._uuid, owned=True)
        for_index = {**self._object_metadata, object_keys.ROLE_KEY: Role.INDEX.value}
        copies.put_index(self._metadata, storage, self._segment, index_name, for_index)
        return grid

    def link(self, made: Made) -> None:
        """See Recipe.link. The same commit completes the attempt."""
        with self._metadata.write() as txn:
            record = made.record(txn, ObjectId(txn.allocate_id()))
            segment = _closed(txn, self._segment.id)
            if segment.whole_in_cold or tuple(chunk for chunk, _ in _local(txn, segment)) != self._chunks:
                raise ChunksMoved(f"{directories.full_name(txn, segment)}: its chunks changed meanwhile")
            times = ByteTimes.of(chunk_times.of_local(txn, segment, list(_local(txn, segment))))
            ledger_record = replace(self._ledger_record(record, segment), times=times)
            # Incomplete cold chunks go; their objects are deleted once the journal names the new one.
            editor, chunks = Editor(txn, segment), list(chains.chunks(txn, segment.id, Tier.COLD))
            editor.remove(Tier.COLD, chunks, due_ms=txn.now_ms, after_sequence=txn.store.next_outbox + 1)
            editor.link_objects([(segment.range, ledger_record)], segment_first=True)
            completed = replace(self._ledger.offload, complete=True, timestamp_ms=txn.now_ms)
            entries.put_ledger(txn, replace(self._ledger, offload=completed))
            txn.touch(inode=segment.inode, segment_id=segment.id)

    def _ledger_record(self, record: ObjectRecord, segment: SegmentRecord) -> ObjectRecord:
        index_name, copy_name = self._beside
        return replace(
            record,
            length=segment.length,
            attempt=AttemptId(self._uuid.hex),
            written_ms=segment.modified_ms,
            encoding=PayloadEncoding.PULSAR_BLOCK,
            stored_length=record.length,
            segment_id=segment.id,
            index_name=index_name,
            entries_name=copy_name,
        )


class EmptyLedgerRecipe(LedgerRecipe):
    """Recipe for the same objects of a ledger whose entries are all empty."""

    def describe(self, txn: WriteTransaction) -> Description:
        """Record the attempt, as LedgerRecipe does, with no copy of the entries."""
        description = super().describe(txn)
        self._beside = self._beside[:1]
        return replace(description, beside=self._beside)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        """Write the data object; nobody looks for the place of an empty entry."""
        return storage.put(description.name, self._source, metadata=description.metadata)

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Write the index object. There are no payloads to check."""
        index = LedgerIndex.of_plans(copies.description(self._ledger, self._segment), self._source.plans)
        for_index = {**self._object_metadata, object_keys.ROLE_KEY: Role.INDEX.value}
        storage.put(self._beside[0], BufferSource(encode_index(index)), metadata=for_index)
        return ()

    def link(self, made: Made) -> None:
        """Complete the attempt, whose context has the objects from then on."""
        with self._metadata.write() as txn:
            made.end_intents(txn)
            segment = _closed(txn, self._segment.id)
            if _is_cold(txn, segment):
                raise ChunksMoved(f"{directories.full_name(txn, segment)} was offloaded meanwhile")
            properties = empty_ledgers.own_properties(made.stored.length_bytes)
            completed = replace(
                self._ledger.offload, complete=True, timestamp_ms=txn.now_ms, driver_properties=properties
            )
            entries.put_ledger(txn, replace(self._ledger, offload=completed))
            txn.touch(inode=segment.inode, segment_id=segment.id)


def _is_cold(txn: ReadTransaction, segment: SegmentRecord) -> bool:
    """Return whether a closed ledger is offloaded: every byte, or, where it has none, every entry."""
    return segment.whole_in_cold or (not segment.length and entries.find(txn, segment.id).offload.complete)


def _closed(txn: ReadTransaction, segment_id: SegmentId) -> SegmentRecord:
    """Return a ledger that can be offloaded. Raises NotFound, InvalidRequest."""
    segment = directories.segment(txn, segment_id)
    if segment is None:
        raise NotFound(f"ledger {segment_id} was deleted meanwhile")
    name = directories.full_name(txn, segment)
    if segment.kind is not SegmentKind.LEDGER:
        raise InvalidRequest(f"{name} is not a ledger", remedy=f"tierfs offload {as_word(name)}")
    if not segment.sealed:
        raise InvalidRequest(f"ledger {name} is open", remedy=f"close it first: tierfs seal {as_word(name)}")
    if not segment.length and not entries.count(txn, segment.id):
        raise InvalidRequest(f"ledger {name} has no entries: there is nothing to offload")
    return segment


def _lengths(txn: ReadTransaction, segment: SegmentRecord) -> array[int]:
    if not segment.length and entries.count(txn, segment.id) > empty_ledgers.MOST_OFFLOADED:
        raise InvalidRequest(f"ledger {directories.full_name(txn, segment)} has too many empty entries to be offloaded")
    lengths = array("I")
    for run in entries.runs(txn, segment.id):
        lengths.extend(run.lengths)
    if sum(lengths) != segment.length:
        name = directories.full_name(txn, segment)
        raise DataLoss(f"ledger {name}: its entries are not all known", remedy="run: tierfs check")
    return lengths


def _local(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[tuple[ChunkRecord, ObjectRecord]]:
    """Yield the local chunks, which hold every byte. Raises DataLoss if one is missing or damaged."""
    at = 0
    for chunk in chains.chunks(txn, segment.id, Tier.LOCAL):
        if chunk.start_offset != at or not _is_good(chunk):
            break
        at = chunk.end_offset
        yield chunk, chains.object_of(txn, chunk)
    if at != segment.length:
        raise DataLoss(
            f"ledger {directories.full_name(txn, segment)}: bytes from {at} on are missing or damaged on this disk",
            remedy="run: tierfs check --read",
        )


def _is_good(chunk: ChunkRecord) -> bool:
    return chunk.state is ChunkState.GOOD


def _ledger_id(segment: SegmentRecord) -> int:
    number = tierfs.base.words.names.ledger_id(segment.name)
    return segment.id if number is None else number


def _stored(plan: BlockPlan, lengths: Sequence[int]) -> Iterator[StoredEntries]:
    """Yield the places of a block's entries, cut at the begins of rows."""
    at, offset = plan.first_entry_id, plan.offset + HEADER_BYTES
    while at < plan.first_entry_id + plan.entries:
        end = min(at - at % MAX_RUN_ENTRIES + MAX_RUN_ENTRIES, plan.first_entry_id + plan.entries)
        stored = StoredEntries(at, end - at, offset, FORMAT_1.frame_bytes)
        yield stored
        offset += sum(lengths[at:end]) + stored.entries * stored.frame_bytes
        at = end
