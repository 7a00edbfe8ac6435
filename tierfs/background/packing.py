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
from dataclasses import dataclass
from typing import TypeVar

from tierfs import names
from tierfs.background import intents
from tierfs.background.candidates import ended_ms
from tierfs.background.cold import ColdTier, pack_metadata
from tierfs.background.offload import ChunksMoved, revalidated, source_chunk
from tierfs.background.pack_link import PackLinks
from tierfs.background.planning import OffloadAction, PackAction
from tierfs.background.source import ChunkSource, DamagedChunk, SourceChunk
from tierfs.checksum import GridBuilder, Stretch, joined
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import StoredObject
from tierfs.errors import DataLoss, NotFound, TierfsError
from tierfs.metadata import checksums, directories, keys
from tierfs.metadata.marks import mark
from tierfs.metadata.pack import PackEntry, PackIndex, index_and_trailer, pack_name
from tierfs.metadata.records import IntentRecord, ObjectRecord, SegmentRecord, StoreRecord
from tierfs.metadata.store import MetadataStore, new_id
from tierfs.metadata.tables import INTENTS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.types import AttemptId, ChunkState, DirectoryId, ObjectId, SegmentId, Tier

T = TypeVar("T")

Failures = tuple[tuple[OffloadAction, TierfsError], ...]

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
    failed: Failures = ()
    """What was left out, and why."""

    def plus(self, other: Packed) -> Packed:
        """Both together."""
        return Packed(
            self.bytes + other.bytes,
            (*self.segments, *other.segments),
            (*self.moved, *other.moved),
            (*self.failed, *other.failed),
        )


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
        parts, left = self._gather(action.actions)
        parts.sort(key=lambda part: (part.path.split("/"), part.action.range.start))  # as a listing shows them
        while parts:
            try:
                return self._make(parts).plus(left)
            except DamagedChunk as exc:
                parts, failed = self._without_damaged(parts, exc)
                left = left.plus(Packed(failed=failed))
        return left

    def _without_damaged(self, parts: Sequence[_Part], first: DamagedChunk) -> tuple[list[_Part], Failures]:
        """The parts that are not damaged, and what is wrong with the others: one local read spares as many uploads."""
        with closing(self._source(parts)) as source:
            damages = {_owner_of(parts, one.index): one for one in (*source.damaged(), first)}
        failed = tuple((parts[at].action, self._judged(parts[at].action, one)) for at, one in damages.items())
        return [part for at, part in enumerate(parts) if at not in damages], failed

    def _source(self, parts: Sequence[_Part]) -> ChunkSource:
        """Files are opened one by one: one that is missing costs its own segment alone."""
        return ChunkSource(self._files, [one for part in parts for one in part.sources], keeps_open=False)

    def _gather(self, actions: Sequence[OffloadAction]) -> tuple[list[_Part], Packed]:
        parts: list[_Part] = []
        moved: list[SegmentId] = []
        failed: list[tuple[OffloadAction, TierfsError]] = []
        directory_paths: dict[DirectoryId, str] = {}
        for batch in _batches(actions):
            with self._metadata.read() as txn:
                for action in batch:
                    try:
                        parts.append(_part(txn, action, directory_paths))
                    except ChunksMoved as exc:
                        log.debug("packing: %s", exc)
                        moved.append(action.segment_id)
                    except TierfsError as exc:  # its records are damaged: the others go their way
                        failed.append((action, exc))
        return parts, Packed(moved=tuple(moved), failed=tuple(failed))

    def _judged(self, action: OffloadAction, damage: DamagedChunk) -> TierfsError:
        """Mark what is damaged; a file that is missing may be there again."""
        if isinstance(damage.cause, DataLoss):
            for chunk in action.chunks:
                mark(self._metadata, action.segment_id, Tier.LOCAL, chunk, ChunkState.SUSPECT)
        return damage.cause

    def _make(self, parts: Sequence[_Part]) -> Packed:
        with closing(self._source(parts)) as source:
            job, store = self._intend(parts, source)
            intent = job.intent
            try:
                metadata = pack_metadata(store, intent.attempt, job.crc32c)
                stored = self._cold.storage.put(intent.name, source, metadata=metadata)
                if stored.length_bytes != source.length_bytes:
                    raise DataLoss(f"{intent.name}: {stored.length_bytes} of {source.length_bytes} bytes arrived")
                grid = source.verified_grid()
                done = self._link(job, stored, grid)
            except TierfsError as exc:
                log.info("packing of %s ended: %s", intent.name, exc)
                intents.abandon(self._metadata, intent)
                raise
            if not done.segments:
                intents.abandon(self._metadata, intent)
            return done

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

    def _link(self, job: _Job, stored: StoredObject, grid: GridBuilder) -> Packed:
        """Link everything, one batch after another; of one in which a segment's records are damaged each alone."""
        done = Packed()
        for batch in _batches(tuple(zip(job.parts, job.entries, strict=True))):
            try:
                done = done.plus(self._link_some(job, stored, grid, batch, first=not done.segments))
            except (DataLoss, NotFound):
                for one in batch:
                    done = done.plus(self._link_one(job, stored, grid, one, first=not done.segments))
        return done

    def _link_one(
        self, job: _Job, stored: StoredObject, grid: GridBuilder, one: tuple[_Part, PackEntry], *, first: bool
    ) -> Packed:
        try:
            return self._link_some(job, stored, grid, [one], first=first)
        except (DataLoss, NotFound) as exc:
            return Packed(failed=((one[0].action, exc),))

    def _link_some(
        self,
        job: _Job,
        stored: StoredObject,
        grid: GridBuilder,
        batch: Sequence[tuple[_Part, PackEntry]],
        *,
        first: bool,
    ) -> Packed:
        """One commit."""
        with self._metadata.write() as txn:
            holder = self._holder(txn, job, stored, first=first)
            found = [] if holder is None else list(_unmoved(txn, batch))
            if holder is not None and found:
                if first:
                    self._begin(txn, job, holder, grid)
                _link_batch(txn, holder, found)
        linked = tuple(one.action.segment_id for one in found)
        there = set(linked)
        moved = (part.action.segment_id for part, _ in batch if part.action.segment_id not in there)
        return Packed(sum(one.action.range.length_bytes for one in found), linked, tuple(moved))

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

    def _begin(self, txn: WriteTransaction, job: _Job, holder: ObjectRecord, grid: GridBuilder) -> None:
        """The first commit: the object takes the place of its intent."""
        if not txn.delete(INTENTS.name, job.intent.attempt.encode()):
            # It is garbage by now: linking it would lose bytes.
            raise ChunksMoved(f"{job.intent.name}: another holder took this upload for a dead one's")
        checksums.put_grid(txn, holder.id, grid.grid())


def _part(txn: ReadTransaction, action: OffloadAction, directory_paths: dict[DirectoryId, str]) -> _Part:
    """An action as it is now. Raises ChunksMoved, and what damaged records raise."""
    segment, holders = revalidated(txn, action)
    parent = directory_paths.get(segment.parent_id)
    if parent is None:
        parent = directories.path_of(txn, segment.parent_id, "")
        directory_paths[segment.parent_id] = parent
    path = f"{parent}{segment.name}"
    if names.is_removed(path):  # an index must not tell the name that it is hidden under
        raise ChunksMoved(f"segment {segment.id} was removed meanwhile")
    return _Part(action, path, tuple(source_chunk(txn, *pair) for pair in zip(action.chunks, holders, strict=True)))


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


def _entries(parts: Sequence[_Part], crcs: Sequence[Stretch]) -> Iterator[PackEntry]:
    """What the index says of each part; `crcs` are length and CRC32C of all their chunks, one after another."""
    at, chunk = 0, 0
    for part in parts:
        crc = joined(crcs[chunk : chunk + len(part.sources)]).crc32c
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
