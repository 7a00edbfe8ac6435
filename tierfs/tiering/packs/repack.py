"""Repack: move the live chunks of a mostly dead pack to a new one, and drop the old one.

A walk over the objects, in small steps, finds such packs; the pack's own index names the segments to look at. Crash
order as in packing.py; the new chunks replace the old ones, whose object becomes garbage due after the grace period and
not before the journal names the new one. A pack stays if chunks point at it that its index does not lead to (a concat
moved them).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options.config import OffloadSettings
from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import ChunkState, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import chains, chunk_times, directories, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, StoreRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.verified import VerifiedReader, own_sum
from tierfs.reading.view import in_object
from tierfs.tiering import objects
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.packs import pack_policy
from tierfs.tiering.packs.format import PACKS_PREFIX, PackEntry, PackIndex, pack_name, read_index
from tierfs.tiering.packs.links import PackLinks
from tierfs.tiering.packs.pack_bytes import PackBytes

# Objects looked at per step: packs are recognized by their names in the raw rows, in under a millisecond.
_ROWS = 2000

# Chunks per transaction, as in packing.py.
_BATCH = 200


@dataclass(frozen=True, slots=True)
class _Live:
    """A chunk that still points at the pack."""

    segment_id: SegmentId
    path: str
    policy: Policy
    chunk: ChunkRecord


class Repack:
    """Finder and executor of repacks in one store. Thread-safe: a command and the holder's own walk take turns."""

    def __init__(self, metadata: MetadataStore, cold: ColdTier, settings: OffloadSettings) -> None:
        self._metadata = metadata
        self._reader = VerifiedReader(metadata, lambda _: cold.storage)
        self._cold = cold
        self._settings = settings
        self._one_at_a_time = threading.Lock()
        self._next = b""
        self._walked = -1
        """The newest transaction when the last walk began: without a newer one there is nothing to do."""
        self._kept: dict[ObjectId, int] = {}
        """Packs that stay as they are for as long as they have this many references."""

    def step(self) -> int | None:
        """Look at some objects, and repack at most one; return its live bytes, None when the walk is over."""
        with self._one_at_a_time:
            return self._step()

    def _step(self) -> int | None:
        newest = self._metadata.last_transaction_id()
        if not self._next:
            if newest == self._walked:
                return None
            self._walked = newest
        with self._metadata.read() as txn:
            rows = list(islice(txn.scan_raw(OBJECTS.name, self._next), _ROWS))
            pack_keys = [key for key, row in rows if PACKS_PREFIX.encode() in row]
            self._next = rows[-1][0] + b"\0" if len(rows) == _ROWS else b""  # also past a row that is damaged
            candidates = [pack for key in pack_keys if (pack := txn.get(OBJECTS, key)) is not None]
            dead = next((pack for pack in candidates if self._is_dead(txn, pack)), None)
        if dead is not None:
            self._kept[dead.id] = dead.references
            self._next = tables.u64(dead.id)
            try:
                return self.run(dead)
            except TierfsError:
                del self._kept[dead.id]  # a later walk tries again
                self._next += b"\0"
                raise
        return 0 if self._next else None

    def run(self, pack: ObjectRecord) -> int:
        """Move the live chunks of a pack and return their bytes, 0 when the pack has to stay.

        Raises ChunksMoved, DataLoss if a chunk is damaged (it is then suspect), Fenced, WrongColdTier, and storage
        errors; the old pack stays in every case.
        """
        self._cold.require_ours()
        index = read_index(self._cold.storage, pack.name, pack.stored_bytes)
        live = self._live(pack, index)
        size = sum(each.chunk.length for each in live)
        if len(live) != pack.references or 100 * (pack.length - size) < self._dead_percent * pack.length:
            return 0
        for group in pack_policy.by_compression(live, lambda each: each.policy):
            self._move(pack, group)
        return size

    def _move(self, pack: ObjectRecord, live: Sequence[_Live]) -> None:
        """Move chunks of a pack to a new one."""
        parts = [self._read(pack, each) for each in live]
        with self._metadata.read() as txn:
            store = txn.store
        grace_ms = self._settings.grace_s * 1000
        with closing(RepackRecipe(self._metadata, store, pack, live, parts, grace_ms)) as recipe:
            objects.make(self._metadata, self._cold, recipe)

    @property
    def _dead_percent(self) -> int:
        return self._settings.relocate_dead_percent

    def _is_dead(self, txn: ReadTransaction, pack: ObjectRecord) -> bool:
        """Return whether few of a pack's chunks are left; `run` counts bytes once it has read the index."""
        return (
            self._kept.get(pack.id) != pack.references
            and 0 < 100 * pack.references <= (100 - self._dead_percent) * pack.packed
            and not pack.foreign
            and pack.location_id == self._cold.location_id
            and self._settings.relocate_min_bytes <= pack.length <= self._settings.relocate_max_bytes
            and pack.linked_sequence <= txn.store.journal.published_sequence
        )

    def _live(self, pack: ObjectRecord, index: PackIndex) -> list[_Live]:
        """Return the chunks that the index leads to, each once; without those of segments that are being removed."""
        live: dict[tuple[SegmentId, int], _Live] = {}
        cache = PolicyCache()
        for at in range(0, len(index.entries), _BATCH):
            with self._metadata.read() as txn:
                for entry in index.entries[at : at + _BATCH]:
                    segment = directories.segment(txn, entry.segment_id)
                    if segment is None:
                        continue
                    path = directories.path_of(txn, segment.parent_id, segment.name)
                    if names.is_removed(path):
                        continue
                    policy = cache.of(txn, segment).values
                    for chunk in chains.overlapping(txn, segment.id, Tier.COLD, entry.range):
                        if chunk.object_id == pack.id and _is_good(chunk):
                            live[segment.id, chunk.start_offset] = _Live(segment.id, path, policy, chunk)
        return sorted(live.values(), key=lambda each: (each.path.split("/"), each.chunk.start_offset))

    def _read(self, pack: ObjectRecord, live: _Live) -> bytes:
        """Return the bytes of a chunk, proved right. Raises BlockDiffers if it is damaged, which is suspect then."""
        placed = PlacedChunk(live.chunk, pack)
        held = in_object(placed.range, placed)
        try:
            return bytes(self._reader.read(pack, held, self._reader.grid(pack, held), own_sum(placed)))
        except BlockDiffers:
            self._reader.suspect(live.segment_id, placed)
            raise


class RepackRecipe(objects.Recipe[None]):
    """Recipe for the pack that replaces a mostly dead one. Close it."""

    frees = True

    def __init__(
        self,
        metadata: MetadataStore,
        store: StoreRecord,
        old: ObjectRecord,
        live: Sequence[_Live],
        parts: Sequence[bytes],
        grace_ms: int,
    ) -> None:
        """Begin an attempt. `parts`: the bytes of the live chunks."""
        super().__init__(0)
        self._metadata = metadata
        self._store = store
        self._old = old
        self._live = live
        self._grace_ms = grace_ms
        self._entries = tuple(_entries(live, parts))
        self._object_id = ObjectId(0)
        index = PackIndex(store.store_id, store.store_epoch, self.attempt, metadata.clock.now_ms(), self._entries)
        self._bytes = PackBytes(parts, index, pack_policy.of_pack(each.policy for each in live))
        self.compressed, self.crc32c = self._bytes.compressed, self._bytes.crc32c

    def close(self) -> None:
        """Free the memory of compressed frames; idempotent."""
        self._bytes.close()

    def describe(self, txn: WriteTransaction) -> Description:
        """See Recipe.describe. Moved chunks are left out when the pack is linked."""
        self._object_id = ObjectId(txn.allocate_id())
        epoch, is_compressed = self._store.store_epoch, self.compressed is not None
        name = pack_name(self._object_id, epoch, self.attempt, self.crc32c, is_compressed=is_compressed)
        metadata = objects.pack_metadata(self._store, self.attempt, self.crc32c)
        return Description(name, self._bytes.length_bytes, metadata)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        return storage.put(description.name, self._bytes.source, metadata=description.metadata)

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Return the checksums of what was sent; the server checked what arrived."""
        return self._bytes.grid.grid()

    def link(self, made: Made) -> None:
        """Link in commits of bounded size; chunks that moved meanwhile stay where they are."""
        pairs = list(zip(self._live, self._entries, strict=True))
        for at in range(0, len(pairs), _BATCH):
            with self._metadata.write() as txn:
                unmoved = [(live, entry) for live, entry in pairs[at : at + _BATCH] if _is_unmoved(txn, live)]
                pack = txn.get(OBJECTS, tables.u64(self._object_id)) if at else self._first(txn, made)
                if pack is None or not unmoved:
                    raise ChunksMoved(f"{self._old.name}: its chunks changed meanwhile")
                self._swap(txn, pack, unmoved)

    def _first(self, txn: WriteTransaction, made: Made) -> ObjectRecord:
        """Return the pack's record, with the times of the old one: copying does not make its bytes new."""
        record = made.record(txn, self._object_id)
        return replace(record, created_ms=self._old.created_ms, written_ms=self._old.written_by_ms)

    def _swap(self, txn: WriteTransaction, pack: ObjectRecord, unmoved: Sequence[tuple[_Live, PackEntry]]) -> None:
        links, sequence = PackLinks(txn, pack), txn.store.next_outbox
        due_ms = txn.now_ms + self._grace_ms
        for live, entry in unmoved:
            segment = directories.segment(txn, live.segment_id)
            assert segment is not None
            current = txn.get(CHUNKS, tables.chunk(live.segment_id, Tier.COLD, live.chunk.start_offset))
            assert current is not None
            editor = Editor(txn, links.newest(segment))
            segment = editor.remove(Tier.COLD, [current], due_ms=due_ms, after_sequence=sequence).segment
            links.add(segment, entry, chunk_times.of_placed([PlacedChunk(current, self._old)], current.range))
        links.end()


def _is_good(chunk: ChunkRecord) -> bool:
    return chunk.state is ChunkState.GOOD


def _is_unmoved(txn: ReadTransaction, live: _Live) -> bool:
    current = txn.get(CHUNKS, tables.chunk(live.segment_id, Tier.COLD, live.chunk.start_offset))
    return current is not None and replace(current, next=0, stored=b"") == replace(live.chunk, next=0, stored=b"")


def _entries(live: Sequence[_Live], parts: Sequence[bytes]) -> Iterator[PackEntry]:
    at = 0
    for each, data in zip(live, parts, strict=True):
        yield PackEntry(each.segment_id, each.path, each.chunk.start_offset, len(data), at, crc32c(data))
        at += len(data)
