"""Packing: make one verified cold object of one PackAction, shared by chunks of many segments.

Crash order as in objects.py, except that there are several commits of bounded size, each of which revalidates its
sources, links their chunks and queues the change for the journal. The first one drops the intent: from then on the
object has references, and a crash leaves chunks local that are packed again. Chunks that moved meanwhile or prove to
be damaged are left out; their bytes in the object are dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from tierfs.base.bytes.byte_times import TimedBytes
from tierfs.base.bytes.checksum import Stretch, joined
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Allowance
from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, NotFound, TierfsError
from tierfs.base.words.types import MAX_PACK_ENTRIES, Compression, DirectoryId, ObjectId, SegmentId
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord, StoreRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.reading.verified import VerifiedReader
from tierfs.tiering import objects
from tierfs.tiering.candidates import OffloadAction, PackAction
from tierfs.tiering.compressed_source import compressed
from tierfs.tiering.extra_metadata import NO_EXTRA
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.offload import Accuser, revalidated, sources_of, times_of
from tierfs.tiering.offload_source import ChunkSource, DamagedChunk, SourceChunk
from tierfs.tiering.packs import pack_policy
from tierfs.tiering.packs.format import PackEntry, PackIndex, index_and_trailer, index_frame, pack_name
from tierfs.tiering.packs.links import PackLinks

T = TypeVar("T")

Failures = tuple[tuple[OffloadAction, TierfsError], ...]

log = logging.getLogger(__name__)

# Parts of all packs in work: 4 KiB of memory each, and it is the interpreter that limits their rate. A full pack has as
# many.
_PARTS_IN_WORK = MAX_PACK_ENTRIES

# Chunks read or linked in one transaction: some 40 ms in which no other thread can commit.
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Packed:
    """Result of a PackAction."""

    bytes: int = 0
    segments: tuple[SegmentId, ...] = ()
    """Segments whose bytes became cold."""
    moved: tuple[SegmentId, ...] = ()
    """Segments whose chunks changed meanwhile: plan again."""
    failed: Failures = ()
    """Actions that were left out, and why."""

    def plus(self, other: Packed) -> Packed:
        """Return the sum of both."""
        return Packed(
            self.bytes + other.bytes,
            (*self.segments, *other.segments),
            (*self.moved, *other.moved),
            (*self.failed, *other.failed),
        )


@dataclass(frozen=True, slots=True)
class _PackPart:
    """One action of a pack, with its segment's path and policy, its chunks and sources as a transaction read them."""

    action: OffloadAction
    path: str
    policy: Policy
    places: tuple[PlacedChunk, ...]
    sources: tuple[SourceChunk, ...]

    def without(self, numbers: Collection[int]) -> Iterator[_PackPart]:
        """Yield the parts that move all chunks but these."""
        held = dict(zip(self.action.chunks, zip(self.places, self.sources, strict=True), strict=True))
        for action in self.action.without(numbers):
            places, sources = zip(*(held[chunk] for chunk in action.chunks), strict=True)
            yield _PackPart(action, self.path, self.policy, places, sources)


@dataclass(frozen=True, slots=True)
class _LinkedPart:
    """One part to link: the segment's current record, the entry with its place in the pack, the times of its bytes."""

    segment: SegmentRecord
    action: OffloadAction
    entry: PackEntry
    times: tuple[TimedBytes, ...]


class PackOffload:
    """Executor of pack actions. Thread-safe."""

    def __init__(self, metadata: MetadataStore, files: ChunkFiles, cold: ColdTier) -> None:
        self._metadata = metadata
        self._files = files
        self._cold = cold
        self._accuser = Accuser(VerifiedReader(metadata, lambda _: cold.storage, lambda: files))
        self._in_work = Allowance(_PARTS_IN_WORK)

    def run(
        self,
        action: PackAction,
        linked: Callable[[Packed], object] = lambda _: None,
        extra: Mapping[str, str] = NO_EXTRA,
    ) -> Packed:
        """Make the action's bytes cold, except moved and damaged ones. Idempotent, as Offload.run.

        `linked` is called with each part of the result that is committed. `extra`: checked extra metadata.

        A damaged chunk becomes suspect, and the others are packed without it. Raises Unavailable when a file was read
        wrongly and proves right, Fenced, WrongColdTier and storage errors; the local bytes stay in every case.
        """
        self._cold.require_ours()
        with self._in_work.of(len(action.actions)):
            return self._run(action, linked, extra)

    def _run(self, action: PackAction, linked: Callable[[Packed], object], extra: Mapping[str, str]) -> Packed:
        parts, done = self._gather(action.actions)
        parts.sort(key=lambda part: (part.path.split("/"), part.action.range.start))  # as a listing shows them
        for group in pack_policy.by_compression(parts, lambda part: part.policy):
            done = done.plus(self._pack(group, linked, extra))
        return done

    def _pack(self, parts: list[_PackPart], linked: Callable[[Packed], object], extra: Mapping[str, str]) -> Packed:
        """Make one pack, again without those that are damaged."""
        omitted = Packed()
        while parts:
            with closing(ChunkSource(self._files, [chunk for part in parts for chunk in part.sources])) as source:
                try:
                    return self._make(parts, source, linked, extra).plus(omitted)
                except DamagedChunk as exc:
                    parts, failed = self._without_damaged(parts, source, exc)
                    omitted = omitted.plus(Packed(failed=failed))
        return omitted

    def _without_damaged(
        self, parts: Sequence[_PackPart], source: ChunkSource, first: DamagedChunk
    ) -> tuple[list[_PackPart], Failures]:
        """Return the parts without their damaged chunks, and the actions that had any. See Accuser.damages."""
        places = [(part.action.segment_id, place) for part in parts for place in part.places]
        damages = self._accuser.damages(source, places, first)
        kept: list[_PackPart] = []
        failed: list[tuple[OffloadAction, TierfsError]] = []
        at = 0
        for part in parts:
            errors = {number - at: damages[number] for number in range(at, at + len(part.places)) if number in damages}
            kept += part.without(errors)
            failed += [(part.action, error) for _, error in sorted(errors.items())[:1]]
            at += len(part.places)
        return kept, tuple(failed)

    def _gather(self, actions: Sequence[OffloadAction]) -> tuple[list[_PackPart], Packed]:
        parts: list[_PackPart] = []
        moved: list[SegmentId] = []
        failed: list[tuple[OffloadAction, TierfsError]] = []
        directory_paths: dict[DirectoryId, str] = {}
        cache = PolicyCache()
        for batch in _batches(actions):
            with self._metadata.read() as txn:
                for action in batch:
                    try:
                        parts.append(_part(txn, action, directory_paths, cache))
                    except ChunksMoved as exc:
                        log.debug("packing: %s", exc)
                        moved.append(action.segment_id)
                    except TierfsError as exc:  # its records are damaged: the others are still packed
                        failed.append((action, exc))
        return parts, Packed(moved=tuple(moved), failed=tuple(failed))

    def _make(
        self,
        parts: Sequence[_PackPart],
        source: ChunkSource,
        linked: Callable[[Packed], object],
        extra: Mapping[str, str],
    ) -> Packed:
        with self._metadata.read() as view:
            store = view.store
        with closing(PackRecipe(self._metadata, store, parts, source, linked, extra)) as recipe:
            return objects.make(self._metadata, self._cold, recipe)


class PackRecipe(objects.Recipe[Packed]):
    """Recipe for the pack of some parts. Close it."""

    def __init__(
        self,
        metadata: MetadataStore,
        store: StoreRecord,
        parts: Sequence[_PackPart],
        source: ChunkSource,
        linked: Callable[[Packed], object],
        extra: Mapping[str, str] = NO_EXTRA,
    ) -> None:
        """Add the index to the source, or to its compressed form. Raises DamagedChunk."""
        super().__init__(0)
        self._metadata = metadata
        self._store = store
        self._source = source
        self._linked = linked
        self._extra = extra
        self._parts = tuple(zip(parts, _entries(parts, source.chunk_crcs()), strict=True))
        self._object_id = ObjectId(0)
        entries = tuple(entry for _, entry in self._parts)
        index = PackIndex(store.store_id, store.store_epoch, self.attempt, metadata.clock.now_ms(), entries)
        payload_bytes, policy = source.length_bytes, pack_policy.of_pack(part.policy for part in parts)
        self.compressed = self._sent = compressed(source, policy, index_frame(index, payload_bytes))
        self._kept_plain = self._sent is None and policy.compression is Compression.AUTO
        if self._sent is None:
            source.add_tail(index_and_trailer(index, payload_bytes))
        self.crc32c = source.crc32c()

    def close(self) -> None:
        """Free the memory of compressed frames; idempotent."""
        if self._sent is not None:
            self._sent.close()

    def describe(self, txn: WriteTransaction) -> Description:
        """See Recipe.describe. Moved parts are left out when the pack is linked."""
        self._object_id = ObjectId(txn.allocate_id())
        is_compressed = self.compressed is not None
        name = pack_name(
            self._object_id, self._store.store_epoch, self.attempt, self.crc32c, is_compressed=is_compressed
        )
        metadata = {**self._extra, **objects.pack_metadata(self._store, self.attempt, self.crc32c)}
        return Description(name, (self._sent or self._source).length_bytes, metadata)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        return storage.put(description.name, self._sent or self._source, metadata=description.metadata)

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Check the sent bytes against our checksums; the server checked those that arrived."""
        return self._source.verified_grid().grid()

    def link(self, made: Made) -> Packed:
        """Link all parts, one batch after another; link a batch with damaged records part by part."""
        done = Packed()
        for batch in _batches(self._parts):
            try:
                done = done.plus(self._link_some(made, batch, first=not done.segments))
            except (DataLoss, NotFound):
                for pair in batch:
                    done = done.plus(self._link_one(made, pair, first=not done.segments))
        if not done.segments:
            objects.abandon_intent(self._metadata, made.intents[0])
        return done

    def _record(self, txn: WriteTransaction, made: Made) -> ObjectRecord:
        return replace(made.record(txn, self._object_id), kept_plain=self._kept_plain)

    def _link_one(self, made: Made, pair: tuple[_PackPart, PackEntry], *, first: bool) -> Packed:
        try:
            return self._link_some(made, [pair], first=first)
        except (DataLoss, NotFound) as exc:
            return Packed(failed=((pair[0].action, exc),))

    def _link_some(self, made: Made, batch: Sequence[tuple[_PackPart, PackEntry]], *, first: bool) -> Packed:
        """Link parts in one commit; the first one makes the pack's record."""
        with self._metadata.write() as txn:
            # No record after the first commit: all chunks linked to the pack are gone by now, and it with them.
            pack = None if first else txn.get(OBJECTS, tables.u64(self._object_id))
            unmoved = list(_unmoved(txn, batch)) if first or pack is not None else []
            if unmoved:
                _link_batch(txn, pack or self._record(txn, made), unmoved)
        linked = tuple(part.action.segment_id for part in unmoved)
        unmoved_ids = set(linked)
        moved = (part.action.segment_id for part, _ in batch if part.action.segment_id not in unmoved_ids)
        packed = Packed(sum(part.action.range.length_bytes for part in unmoved), linked, tuple(moved))
        self._linked(packed)
        return packed


def _part(
    txn: ReadTransaction, action: OffloadAction, directory_paths: dict[DirectoryId, str], cache: PolicyCache
) -> _PackPart:
    """Return the part of an action, from the current records. Raises ChunksMoved, and DataLoss for damaged records."""
    segment, places = revalidated(txn, action)
    parent = directory_paths.get(segment.parent_id)
    if parent is None:
        parent = directories.path_of(txn, segment.parent_id, "")
        directory_paths[segment.parent_id] = parent
    path = f"{parent}{segment.name}"
    if names.is_removed(path):  # the index must not contain the name that a removed segment is hidden under
        raise ChunksMoved(f"segment {segment.id} was removed meanwhile")
    policy = cache.of(txn, segment).values
    return _PackPart(action, path, policy, tuple(places), tuple(sources_of(txn, action, places)))


def _unmoved(txn: WriteTransaction, batch: Sequence[tuple[_PackPart, PackEntry]]) -> Iterator[_LinkedPart]:
    """Yield the parts whose chunks did not change since the actions' plan."""
    for part, entry in batch:
        try:
            segment, places = revalidated(txn, part.action)
            yield _LinkedPart(segment, part.action, entry, tuple(times_of(txn, segment, part.action, places)))
        except ChunksMoved as exc:
            log.debug("packing: %s", exc)


def _link_batch(txn: WriteTransaction, pack: ObjectRecord, batch: Sequence[_LinkedPart]) -> None:
    """Link chunks to the pack."""
    links = PackLinks(txn, pack)
    for part in batch:
        links.add(links.newest(part.segment), part.entry, part.times)
    links.end()


def _entries(parts: Sequence[_PackPart], crcs: Sequence[Stretch]) -> Iterator[PackEntry]:
    """Yield the index entry of each part; `crcs` are length and CRC32C of all their chunks, in order."""
    at, chunk = 0, 0
    for part in parts:
        crc = joined(crcs[chunk : chunk + len(part.sources)]).crc32c
        held = part.action.range
        yield PackEntry(part.action.segment_id, part.path, held.start, held.length_bytes, at, crc)
        at, chunk = at + held.length_bytes, chunk + len(part.sources)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), _BATCH):
        yield items[first : first + _BATCH]
