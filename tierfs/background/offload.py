"""Offload: one OffloadAction becomes one verified cold object.

Crash order: intent committed -> object created -> verified -> one commit that revalidates the source,
links the cold chunk, drops the intent and queues the change for the journal. Whatever a crash leaves
is an intent whose object nobody refers to; intents.py turns it into garbage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from tierfs.background import intents
from tierfs.background.candidates import ended_ms
from tierfs.background.cold import ColdTier, object_metadata, object_name
from tierfs.background.planning import OffloadAction
from tierfs.background.source import ChunkSource, DamagedChunk, SourceChunk
from tierfs.checksum import GridBuilder
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import StoredObject
from tierfs.errors import Conflict, DataLoss, TierfsError
from tierfs.metadata import chains, checksums, directories, journal, keys
from tierfs.metadata.marks import mark
from tierfs.metadata.records import ChunkRecord, IntentRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore, new_id
from tierfs.metadata.tables import CHUNKS, INTENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import AttemptId, ByteRange, ChunkState, ObjectId, Tier

T = TypeVar("T")

log = logging.getLogger(__name__)


class ChunksMoved(Conflict):
    """The chunks of an action changed since it was planned; plan again."""


@dataclass(frozen=True, slots=True)
class _Job:
    """An action together with what its first transaction found."""

    action: OffloadAction
    intent: IntentRecord
    crc: int
    """Of all its bytes."""
    metadata: dict[str, str]


class Offload:
    """Carries out offload actions. Thread-safe."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, cold: ColdTier) -> None:
        self._metadata = metadata
        self._files = files
        self._cold = cold

    def run(self, action: OffloadAction) -> int:
        """Make the action's bytes cold; returns how many. Idempotent: nothing is uploaded twice for good.

        Raises ChunksMoved when the chunks moved meanwhile, DataLoss when a source is damaged (its chunk is
        then suspect), Fenced, WrongColdTier, and what the storage raises; the local bytes stay in every case.
        """
        self._cold.require_ours()
        with closing(ChunkSource(self._files, self._sources(action))) as source:
            crc = self._suspecting(action, source.crc32c)
            job = self._intend(action, crc)
            try:
                stored = self._cold.storage.put(job.intent.name, source, metadata=job.metadata)
                grid = self._verified(job, source, stored)
                self._commit(job, stored, grid)
            except TierfsError as exc:
                log.info("offload of %s ended: %s", job.intent.name, exc)
                intents.abandon(self._metadata, job.intent)
                if isinstance(exc, DamagedChunk):
                    raise exc.cause from exc
                raise
        return action.range.length_bytes

    def abandon_intents(self) -> int:
        """See intents.abandon_all."""
        return intents.abandon_all(self._metadata)

    def _sources(self, action: OffloadAction) -> tuple[SourceChunk, ...]:
        with self._metadata.read() as txn:
            _, holders = revalidated(txn, action)
            return tuple(source_chunk(txn, *pair) for pair in zip(action.chunks, holders, strict=True))

    def _intend(self, action: OffloadAction, crc: int) -> _Job:
        attempt = AttemptId(new_id())
        with self._metadata.write() as txn:
            segment, _ = revalidated(txn, action)
            path = directories.path_of(txn, segment.parent_id, segment.name)
            epoch = txn.store.store_epoch
            intent = IntentRecord(
                attempt=attempt,
                location_id=self._cold.location_id,
                name=object_name(path, segment.id, action.range, epoch, attempt, crc),
                segment_id=segment.id,
                start_offset=action.range.start,
                end_offset=action.range.end,
                created_ms=txn.now_ms,
                store_epoch=epoch,
            )
            txn.put(INTENTS, attempt.encode(), intent)
            described = object_metadata(txn.store, path, segment.id, action.range, attempt, crc)
            return _Job(action, intent, crc, described)

    def _verified(self, job: _Job, source: ChunkSource, stored: StoredObject) -> GridBuilder:
        """Size by the server's word, checksum by ours on what was sent and the server's on what arrived."""
        if stored.length_bytes != source.length_bytes:
            raise DataLoss(f"{job.intent.name}: {stored.length_bytes} of {source.length_bytes} bytes arrived")
        return self._suspecting(job.action, source.verified_grid)

    def _suspecting(self, action: OffloadAction, check: Callable[[], T]) -> T:
        """The result of a check of the source; damage that it finds makes the action's chunks suspect."""
        try:
            return check()
        except DamagedChunk as exc:
            if isinstance(exc.cause, DataLoss):
                self._mark_suspect(action)
            raise exc.cause from exc

    def _commit(self, job: _Job, stored: StoredObject, grid: GridBuilder) -> None:
        with self._metadata.write() as txn:
            if not txn.delete(INTENTS.name, job.intent.attempt.encode()):
                # Its object is garbage by now: linking it would lose bytes.
                raise ChunksMoved(f"{job.intent.name}: another holder took this upload for a dead one's")
            segment, _ = revalidated(txn, job.action)
            last = job.action.chunks[-1]
            holder = ObjectRecord(
                id=ObjectId(txn.allocate_id()),
                tier=Tier.COLD,
                location_id=self._cold.location_id,
                name=job.intent.name,
                length=stored.length_bytes,
                etag=stored.etag,
                crc32c=job.crc,
                store_epoch=job.intent.store_epoch,
                attempt=job.intent.attempt,
                created_ms=txn.now_ms,
                linked_sequence=txn.store.next_outbox + 1,
                written_ms=min(ended_ms(txn, segment, last), segment.modified_ms),
            )
            span = job.action.range
            chunk = ChunkRecord(start_offset=span.start, length=span.length_bytes, object_id=holder.id)
            checksums.put_grid(txn, holder.id, grid.grid())
            linked = replace(chains.insert(txn, segment, Tier.COLD, chunk, holder), changed_ms=txn.now_ms)
            journal.put_segment(txn, linked)  # first: a chunk beyond the length is taken for a crashed concat
            journal.cold_linked(txn, segment.id, (chunk,), (replace(holder, references=1),))
            txn.touch(inode=segment.inode, segment_id=segment.id)

    def _mark_suspect(self, action: OffloadAction) -> None:
        for chunk in action.chunks:
            mark(self._metadata, action.segment_id, Tier.LOCAL, chunk, ChunkState.SUSPECT)


def revalidated(txn: ReadTransaction, action: OffloadAction) -> tuple[SegmentRecord, list[ObjectRecord]]:
    """The segment and the local objects, if the chunks are still what the action was planned for."""
    segment = directories.segment(txn, action.segment_id)
    if segment is None:
        raise ChunksMoved(f"segment {action.segment_id} was deleted meanwhile")
    holders: list[ObjectRecord] = []
    for chunk in action.chunks:
        current = txn.get(CHUNKS, keys.chunk(action.segment_id, Tier.LOCAL, chunk.start_offset))
        if current is None or _place(current) != _place(chunk):
            raise ChunksMoved(f"segment {segment.name}: its chunk at {chunk.start_offset} changed meanwhile")
        holders.append(chains.object_of(txn, current))
    cold = next(chains.overlapping(txn, segment.id, Tier.COLD, action.range), None) if segment.cold.count else None
    if cold is not None:
        raise ChunksMoved(f"segment {segment.name}: bytes from {cold.start_offset} on became cold meanwhile")
    return segment, holders


def _place(chunk: ChunkRecord) -> tuple[ObjectId, int, int]:
    """Which bytes a chunk consists of."""
    return chunk.object_id, chunk.object_offset, chunk.length


def source_chunk(txn: ReadTransaction, chunk: ChunkRecord, holder: ObjectRecord) -> SourceChunk:
    crcs = tuple(run.crc(index) for run in checksums.runs(txn, holder.id) for index in range(run.count))
    held = ByteRange(chunk.object_offset, chunk.object_offset + chunk.length)
    return SourceChunk(holder.name, holder.length, crcs, held)
