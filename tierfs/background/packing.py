"""Packing: one PackAction becomes one verified cold object that chunks of many segments share.

Crash order: intent committed -> object created -> verified -> commits of bounded size, each of which revalidates
its sources, links their chunks and queues the change for the journal. The first one drops the intent: from then on
the object has references, and a crash leaves chunks local that are packed anew. What moved meanwhile, or turns out
to be damaged, is left out; its bytes in the object are dead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from tierfs import names
from tierfs.background import intents
from tierfs.background.candidates import ended_ms
from tierfs.background.cold import ColdTier, pack_metadata
from tierfs.background.offload import ChunksMoved, revalidated, source_chunk
from tierfs.background.pack_link import PackLinks
from tierfs.background.planning import OffloadAction, PackAction
from tierfs.background.source import ChunkSource, DamagedChunk, SourceChunk
from tierfs.checksum import combine
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import StoredObject
from tierfs.errors import DataLoss, TierfsError
from tierfs.metadata import checksums, directories, keys
from tierfs.metadata.marks import mark
from tierfs.metadata.pack import PackEntry, PackIndex, index_and_trailer, pack_name
from tierfs.metadata.records import IntentRecord, ObjectRecord, SegmentRecord, StoreRecord
from tierfs.metadata.store import MetadataStore, new_id
from tierfs.metadata.tables import INTENTS, OBJECTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import AttemptId, ChunkState, DirectoryId, ObjectId, SegmentId, Tier

T = TypeVar("T")

log = logging.getLogger(__name__)

_BATCH = 200
"""Chunks looked at or linked in one transaction: some 40 ms in which nobody else can commit."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What became of a PackAction."""

    bytes: int = 0
    segments: tuple[SegmentId, ...] = ()
    """Whose bytes are cold by it."""
    moved: tuple[SegmentId, ...] = ()
    """Whose chunks changed meanwhile: plan again."""
    failed: tuple[tuple[OffloadAction, TierfsError], ...] = ()
    """What was left out, and why."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One action of a pack, with what a transaction found of it."""

    action: OffloadAction
    path: str
    sources: tuple[SourceChunk, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """A pack that is being made."""

    parts: tuple[_Part, ...]
    entries: tuple[PackEntry, ...]
    intent: IntentRecord
    object_id: ObjectId
    crc32c: int


@dataclass(frozen=True, slots=True)
class _Found:
    """What is linked: a segment as it is, an action on it, and where its bytes lie in the pack."""

    segment: SegmentRecord
    action: OffloadAction
    entry: PackEntry


class PackOffload:
    """Carries out pack actions. Thread-safe."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, cold: ColdTier) -> None:
        self._metadata = metadata
        self._files = files
        self._cold = cold

    def run(self, action: PackAction) -> Packed:
        """Make the action's bytes cold, all that did not move and are not damaged. Idempotent, as Offload.run.

        A damaged chunk becomes suspect, and the others are packed without it. Raises Fenced, WrongColdTier and what
        the storage raises; the local bytes stay in every case.
        """
        self._cold.require_ours()
        parts, moved = self._gather(action.actions)
        parts.sort(key=lambda part: (part.path.split("/"), part.action.range.start))  # as a listing shows them
        failed: list[tuple[OffloadAction, TierfsError]] = []
        done = Packed()
        while parts:
            try:
                done = self._make(parts)
                break
            except DamagedChunk as exc:
                part = parts.pop(_owner_of(parts, exc.index))
                failed.append((part.action, self._judged(part.action, exc)))
        return replace(done, moved=(*moved, *done.moved), failed=tuple(failed))

    def _gather(self, actions: Sequence[OffloadAction]) -> tuple[list[_Part], list[SegmentId]]:
        parts: list[_Part] = []
        moved: list[SegmentId] = []
        directory_paths: dict[DirectoryId, str] = {}
        for batch in _batches(actions):
            with self._metadata.read() as txn:
                for action in batch:
                    try:
                        segment, holders = revalidated(txn, action)
                    except ChunksMoved as exc:
                        log.debug("packing: %s", exc)
                        moved.append(action.segment_id)
                        continue
                    parent = directory_paths.get(segment.parent_id)
                    if parent is None:
                        parent = directories.path_of(txn, segment.parent_id, "")
                        directory_paths[segment.parent_id] = parent
                    if names.is_removed(f"{parent}{segment.name}"):
                        moved.append(action.segment_id)  # its name is gone: an index must not tell the hidden one
                        continue
                    sources = tuple(source_chunk(txn, *pair) for pair in zip(action.chunks, holders, strict=True))
                    parts.append(_Part(action, f"{parent}{segment.name}", sources))
        return parts, moved

    def _judged(self, action: OffloadAction, damage: DamagedChunk) -> TierfsError:
        """Mark what is damaged; a file that is missing may be there again."""
        if isinstance(damage.cause, DataLoss):
            for chunk in action.chunks:
                mark(self._metadata, action.segment_id, Tier.LOCAL, chunk, ChunkState.SUSPECT)
        return damage.cause

    def _make(self, parts: Sequence[_Part]) -> Packed:
        with closing(ChunkSource(self._files, [source for part in parts for source in part.sources])) as source:
            job, store = self._intend(parts, source)
            intent = job.intent
            try:
                metadata = pack_metadata(store, intent.attempt, job.crc32c)
                stored = self._cold.storage.put(intent.name, source, metadata=metadata)
                if stored.length_bytes != source.length_bytes:
                    raise DataLoss(f"{intent.name}: {stored.length_bytes} of {source.length_bytes} bytes arrived")
                grid = source.verified_grid()
                return self._link(job, stored, grid)
            except TierfsError as exc:
                log.info("packing of %s ended: %s", intent.name, exc)
                intents.abandon(self._metadata, intent)
                raise

    def _intend(self, parts: Sequence[_Part], source: ChunkSource) -> tuple[_Job, StoreRecord]:
        """Describe the pack and note that it is about to be made."""
        attempt = AttemptId(new_id())
        entries = tuple(_entries(parts, source.chunk_crcs()))
        with self._metadata.read() as view:
            store = view.store
        now_ms = self._metadata.clock.now_ms()
        index = PackIndex(store.store_id, store.store_epoch, attempt, now_ms, entries)
        payload_bytes = source.length_bytes
        source.add_tail(index_and_trailer(index, payload_bytes))
        crc = source.crc32c()
        with self._metadata.write() as txn:
            object_id = ObjectId(txn.allocate_id())
            intent = IntentRecord(
                attempt=attempt,
                location_id=self._cold.location_id,
                name=pack_name(object_id, store.store_epoch, attempt, crc),
                segment_id=SegmentId(0),
                start_offset=0,
                end_offset=source.length_bytes,
                created_ms=txn.now_ms,
                store_epoch=store.store_epoch,
            )
            txn.put(INTENTS, attempt.encode(), intent)
        return _Job(tuple(parts), entries, intent, object_id, crc), store

    def _link(self, job: _Job, stored: StoredObject, grid: Sequence[int]) -> Packed:
        """Link everything, one batch after another. Raises ChunksMoved when nothing at all could be."""
        linked: list[OffloadAction] = []
        moved: list[SegmentId] = []
        for batch in _batches(tuple(zip(job.parts, job.entries, strict=True))):
            with self._metadata.write() as txn:
                holder = self._holder(txn, job, stored, first=not linked)
                found = [] if holder is None else list(_unmoved(txn, batch))
                if holder is not None and found:
                    if not linked:
                        self._begin(txn, job, holder, grid)
                    _link_batch(txn, holder, found)
            linked += [one.action for one in found]
            there = {one.action.segment_id for one in found}
            moved += [part.action.segment_id for part, _ in batch if part.action.segment_id not in there]
        if not linked:
            raise ChunksMoved(f"{job.intent.name}: all of its chunks changed meanwhile")
        size = sum(action.range.length_bytes for action in linked)
        return Packed(size, tuple(action.segment_id for action in linked), tuple(moved))

    def _holder(self, txn: WriteTransaction, job: _Job, stored: StoredObject, *, first: bool) -> ObjectRecord | None:
        """The pack's record; None when all that was linked to it is gone by now, and it with them."""
        if not first:
            return txn.get(OBJECTS, keys.u64(job.object_id))
        return ObjectRecord(
            id=job.object_id,
            tier=Tier.COLD,
            location_id=self._cold.location_id,
            name=job.intent.name,
            length=stored.length_bytes,
            etag=stored.etag,
            crc32c=job.crc32c,
            store_epoch=job.intent.store_epoch,
            attempt=job.intent.attempt,
            created_ms=txn.now_ms,
        )

    def _begin(self, txn: WriteTransaction, job: _Job, holder: ObjectRecord, grid: Sequence[int]) -> None:
        """The first commit: the object takes the place of its intent."""
        if not txn.delete(INTENTS.name, job.intent.attempt.encode()):
            # It is garbage by now: linking it would lose bytes.
            raise ChunksMoved(f"{job.intent.name}: another holder took this upload for a dead one's")
        for run in checksums.runs_of(holder.id, grid):
            checksums.put_run(txn, holder.id, replace(run, object_id=0))


def _unmoved(txn: WriteTransaction, batch: Sequence[tuple[_Part, PackEntry]]) -> Iterator[_Found]:
    """Those whose chunks still are what their actions were planned for."""
    for part, entry in batch:
        try:
            yield _Found(revalidated(txn, part.action)[0], part.action, entry)
        except ChunksMoved as exc:
            log.debug("packing: %s", exc)


def _link_batch(txn: WriteTransaction, holder: ObjectRecord, batch: Sequence[_Found]) -> None:
    """Link chunks to the pack."""
    links = PackLinks(txn, holder)
    written_ms = holder.written_ms
    for one in batch:
        segment = links.newest(one.segment)
        written_ms = max(written_ms, min(ended_ms(txn, segment, one.action.chunks[-1]), segment.modified_ms))
        links.add(segment, one.entry)
    links.end(written_ms=written_ms)


def _entries(parts: Sequence[_Part], crcs: Sequence[tuple[int, int]]) -> Iterator[PackEntry]:
    """What the index says of each part; `crcs` are length and CRC32C of all their chunks, one after another."""
    at, chunk = 0, 0
    for part in parts:
        crc = 0
        for size, chunk_crc in crcs[chunk : chunk + len(part.sources)]:
            crc = combine(crc, chunk_crc, size)
        span = part.action.range
        yield PackEntry(part.action.segment_id, part.path, span.start, span.length_bytes, at, crc)
        at, chunk = at + span.length_bytes, chunk + len(part.sources)


def _owner_of(parts: Sequence[_Part], chunk: int) -> int:
    """Which part holds chunk number `chunk` of all."""
    for index, part in enumerate(parts):
        if chunk < len(part.sources):
            return index
        chunk -= len(part.sources)
    raise IndexError(chunk)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), _BATCH):
        yield items[first : first + _BATCH]
