"""Repack: move chunks of a pack to a new one: the live ones of a mostly dead pack, or plain ones to be compressed.

A walk over the objects, in small steps, finds such packs; the pack's own index names the segments to look at. Crash
order as in packing.py; the new chunks replace the old ones, whose object becomes garbage due after the grace period and
not before the journal names the new one. A pack stays if chunks point at it that its index does not lead to (a concat
moved them).

Plain chunks to be compressed are named by the caller, who met them in their segments (plain_packs.py). Chunks of the
same bytes, those of clones, share them in the new pack, too. The old pack stays for the chunks that were not named.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from itertools import islice

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import Buffer, crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import OffloadSettings
from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import MAX_PACK_ENTRIES, MIB, ByteRange, ChunkState, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import chains, changes, chunk_times, directories, tables
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
from tierfs.tiering.consolidate_plan import asks_to_compress
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.packs import pack_policy
from tierfs.tiering.packs.format import PACKS_PREFIX, PackEntry, PackIndex, pack_name, read_index
from tierfs.tiering.packs.links import PackLinks
from tierfs.tiering.packs.pack_bytes import PackBytes

# Objects looked at per step: packs are recognized by their names in the raw rows, in under a millisecond.
_ROWS = 2000

# Chunks per transaction, as in packing.py.
BATCH = 200

# Plain bytes of a new pack that are in memory together, three times. Of a larger pack several are made (a guess).
MOST_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class Repacked:
    """Result of moving chunks of a pack."""

    chunks: int = 0
    segments: int = 0
    plain_bytes: int = 0
    """Plain bytes of the new packs."""
    stored_bytes: int = 0
    packs: int = 0
    """New packs."""
    kept_plain_bytes: int = 0
    """Bytes that stay where they are, as compressing them saves too little."""

    def plus(self, other: Repacked) -> Repacked:
        """Return the sum of both."""
        return Repacked(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class _Live:
    """A chunk that still points at the pack."""

    segment_id: SegmentId
    path: str
    policy: Policy
    chunk: ChunkRecord

    @property
    def held(self) -> ByteRange:
        """The bytes of the pack that it has."""
        return ByteRange(self.chunk.object_offset, self.chunk.object_offset + self.chunk.length)


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
            parts = [self._read(pack, each) for each in group]
            with self._recipe(pack, group, parts, frees=True) as recipe:
                objects.make(self._metadata, self._cold, recipe)
        return size

    def compress(self, pack_id: ObjectId, chunks: Iterable[tuple[SegmentId, int]]) -> Repacked:
        """Move chunks of a plain pack, named by segment and start, to compressed ones, where their policies ask for it.

        Under `auto` they stay if that saves too little, and the pack's record notes it. Idempotent. Raises as `run`.
        """
        with self._one_at_a_time:
            self._cold.require_ours()
            pack, live = self._named(pack_id, chunks, asks_to_compress)
            done = Repacked()
            for group in ranges.groups(live, lambda each: each.chunk.length, MOST_BYTES, MAX_PACK_ENTRIES):
                assert pack is not None
                done = done.plus(self._compress(pack, group, frees=len(live) == pack.references))
            return done

    def renew(self, pack_id: ObjectId, chunks: Iterable[tuple[SegmentId, int]]) -> Repacked:
        """Move chunks of a pack whose index or seek table is damaged, named by segment and start, to new packs.

        Those that are suspect stay. Idempotent. Raises as `run`.
        """
        with self._one_at_a_time:
            self._cold.require_ours()
            pack, live = self._named(pack_id, chunks, lambda *_: True)
            done = Repacked()
            for alike in pack_policy.by_compression(live, lambda each: each.policy):
                for group in ranges.groups(alike, lambda each: each.chunk.length, MOST_BYTES, MAX_PACK_ENTRIES):
                    assert pack is not None
                    with self._recipe(pack, group, list(self._plain(pack, group)), frees=True) as recipe:
                        done = done.plus(objects.make(self._metadata, self._cold, recipe))
            return done

    def _compress(self, pack: ObjectRecord, live: Sequence[_Live], *, frees: bool) -> Repacked:
        with self._recipe(pack, live, list(self._plain(pack, live)), frees=frees) as recipe:
            if recipe.compressed is not None:
                return objects.make(self._metadata, self._cold, recipe)
        with self._metadata.write() as txn:
            record = txn.get(OBJECTS, tables.u64(pack.id))
            if record is not None:
                changes.put(txn, OBJECTS, replace(record, kept_plain=True))
        return Repacked(kept_plain_bytes=recipe.payload_bytes)

    def _named(
        self,
        pack_id: ObjectId,
        chunks: Iterable[tuple[SegmentId, int]],
        wants: Callable[[Policy, ObjectRecord], bool],
    ) -> tuple[ObjectRecord | None, list[_Live]]:
        """Return a pack with those of these chunks that the policies of their segments want moved, by their bytes."""
        live: list[_Live] = []
        cache, pack = PolicyCache(), None
        for batch in ranges.groups(chunks, lambda _: 0, 0, BATCH):
            with self._metadata.read() as txn:
                pack = txn.get(OBJECTS, tables.u64(pack_id))
                if pack is None or pack.location_id != self._cold.location_id:
                    return None, []
                for segment_id, start in batch:
                    segment = directories.segment(txn, segment_id)
                    chunk = txn.get(CHUNKS, tables.chunk(segment_id, Tier.COLD, start))
                    if segment is None or chunk is None or chunk.object_id != pack_id or not _is_good(chunk):
                        continue
                    policy = cache.of(txn, segment).values
                    path = directories.path_of(txn, segment.parent_id, segment.name)
                    if wants(policy, pack) and not names.is_removed(path):
                        live.append(_Live(segment_id, path, policy, chunk))
        return pack, sorted(live, key=lambda each: (each.held, each.segment_id))

    def _plain(self, pack: ObjectRecord, live: Sequence[_Live]) -> Iterator[Buffer]:
        """Yield the bytes of chunks that are in the order of their bytes, proved; neighbours are read together."""
        for run in ranges.runs(live, lambda run, each: run[-1].held.end >= each.held.start):
            span = ByteRange(run[0].held.start, max(each.held.end for each in run))
            try:
                data = self._reader.read(pack, span, self._reader.grid(pack, span), None)
            except BlockDiffers:  # perhaps of a dead neighbour: each chunk by itself, which accuses one that is damaged
                yield from (self._read(pack, each) for each in run)
            else:
                yield from (each.held.of(data, span.start) for each in run)

    @contextmanager
    def _recipe(
        self, pack: ObjectRecord, live: Sequence[_Live], parts: Sequence[Buffer], *, frees: bool
    ) -> Iterator[RepackRecipe]:
        with self._metadata.read() as txn:
            store = txn.store
        grace_ms = self._settings.grace_s * 1000
        with closing(RepackRecipe(self._metadata, store, pack, live, parts, grace_ms, frees=frees)) as recipe:
            yield recipe

    @property
    def _dead_percent(self) -> int:
        return self._settings.relocate_dead_percent

    def _is_dead(self, txn: ReadTransaction, pack: ObjectRecord) -> bool:
        """Return whether few of a pack's chunks are left; `run` counts bytes once it has read the index."""
        return (
            self._kept.get(pack.id) != pack.references
            and 0 < 100 * pack.references <= (100 - self._dead_percent) * pack.packed
            and not pack.foreign
            and not pack.archive_class
            and pack.location_id == self._cold.location_id
            and self._settings.relocate_min_bytes <= pack.length <= self._settings.relocate_max_bytes
            and pack.linked_sequence <= txn.store.journal.published_sequence
        )

    def _live(self, pack: ObjectRecord, index: PackIndex) -> list[_Live]:
        """Return the chunks that the index leads to, each once; without those of segments that are being removed."""
        live: dict[tuple[SegmentId, int], _Live] = {}
        cache = PolicyCache()
        for at in range(0, len(index.entries), BATCH):
            with self._metadata.read() as txn:
                for entry in index.entries[at : at + BATCH]:
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


class RepackRecipe(objects.Recipe[Repacked]):
    """Recipe for the pack that replaces chunks of another one. Close it."""

    def __init__(
        self,
        metadata: MetadataStore,
        store: StoreRecord,
        old: ObjectRecord,
        live: Sequence[_Live],
        parts: Sequence[Buffer],
        grace_ms: int,
        *,
        frees: bool,
    ) -> None:
        """Begin an attempt. `parts`: the bytes of the live chunks. `frees`: see Recipe."""
        super().__init__(0)
        self.frees = frees
        self._metadata = metadata
        self._store = store
        self._old = old
        self._grace_ms = grace_ms
        placed = _placed(live, parts)
        self._pairs = [(each, entry) for each, entry, _ in placed]
        self._object_id = ObjectId(0)
        own = [(entry, part) for _, entry, part in placed if part is not None]
        entries = tuple(entry for entry, _ in own)
        index = PackIndex(store.store_id, store.store_epoch, self.attempt, metadata.clock.now_ms(), entries)
        self._bytes = PackBytes([part for _, part in own], index, pack_policy.of_pack(each.policy for each in live))
        self.payload_bytes = sum(entry.length for entry in entries)
        self.compressed, self.crc32c = self._bytes.compressed, self._bytes.crc32c

    def close(self) -> None:
        """Free the memory of compressed frames; idempotent."""
        self._bytes.close()

    def describe(self, txn: WriteTransaction) -> Description:
        """See Recipe.describe. Repacked chunks are left out when the pack is linked."""
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

    def link(self, made: Made) -> Repacked:
        """Link in commits of bounded size; chunks that moved meanwhile stay where they are."""
        linked: list[_Live] = []
        for batch in ranges.groups(self._pairs, lambda _: 0, 0, BATCH):
            with self._metadata.write() as txn:
                unmoved = [(live, entry) for live, entry in batch if _is_unmoved(txn, live)]
                if not unmoved:
                    continue
                pack = txn.get(OBJECTS, tables.u64(self._object_id)) if linked else self._first(txn, made)
                if pack is None:
                    break  # all that was linked to it is gone by now, and it with them
                self.link_batch(txn, pack, unmoved)
                linked += [live for live, _ in unmoved]
        if not linked:
            raise ChunksMoved(f"{self._old.name}: its chunks changed meanwhile")
        segments = {live.segment_id for live in linked}
        return Repacked(len(linked), len(segments), self.payload_bytes, made.stored.length_bytes, 1)

    def _first(self, txn: WriteTransaction, made: Made) -> ObjectRecord:
        """Return the pack's record, with the times of the old one: copying does not make its bytes new."""
        record = made.record(txn, self._object_id)
        return replace(
            record,
            created_ms=self._old.created_ms,
            written_ms=self._old.written_by_ms,
            kept_plain=self._bytes.kept_plain,
        )

    def link_batch(self, txn: WriteTransaction, pack: ObjectRecord, unmoved: Sequence[tuple[_Live, PackEntry]]) -> None:
        """Link chunks to the new pack instead of the old one."""
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


def _placed(live: Sequence[_Live], parts: Sequence[Buffer]) -> list[tuple[_Live, PackEntry, Buffer | None]]:
    """Return each chunk with its place in the new pack and its bytes; None for those that a chunk before it has."""
    placed: list[tuple[_Live, PackEntry, Buffer | None]] = []
    known: dict[ByteRange, PackEntry] = {}
    at = 0
    for each, part in zip(live, parts, strict=True):
        start, same = each.chunk.start_offset, known.get(each.held)
        if same is not None:
            placed.append((each, replace(same, segment_id=each.segment_id, path=each.path, start_offset=start), None))
            continue
        entry = PackEntry(each.segment_id, each.path, start, len(part), at, crc32c(part))
        known[each.held] = entry
        placed.append((each, entry, part))
        at += len(part)
    return placed
