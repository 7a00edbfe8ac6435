"""Orphans: files and objects of this store that no record names, found by listing.

Crashes leave none that an intent does not name, but for chunk files whose first append was never
committed; a restored backup or a server that carries out a PUT late leaves others. The listing comes
first and the records are read afterwards, so that what is made meanwhile is never taken for an orphan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import NotFound
from tierfs.metadata import chains, keys, locations
from tierfs.metadata.records import ChunkRecord, GarbageRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import CHUNKS, GARBAGE, INTENTS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import LocationId, SegmentId, Tier

SEGMENTS_PREFIX = "segments/"

COLD_NAME = re.compile(r".*/(?P<segment>\d+)/chunk-(?P<start>\d{20})-\d{20}-e(?P<epoch>\d+)-[0-9a-f]+", re.DOTALL)
LOCAL_NAME = re.compile(r"[0-9a-f]{2}/(?P<segment>[0-9a-f]+)-(?P<start>[0-9a-f]+)-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file or object that nothing names."""

    tier: Tier
    name: str
    length: int


@dataclass(frozen=True, slots=True)
class _Found:
    orphan: Orphan
    segment_id: SegmentId
    start_offset: int


class OrphanFinder:
    """Looks through one store's files and its cold location."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, storage: ChunkStorage | None, location_id: LocationId
    ) -> None:
        self._metadata = metadata
        self._files = files
        self._storage = storage
        self._location_id = location_id

    def find(self, *, grace_ms: int) -> list[Orphan]:
        """Orphans older than `grace_ms`: by the disk's clock and the server's. Only what this store made."""
        before_ms = self._metadata.clock.now_ms() - grace_ms
        found = [*self._local(before_ms), *self._cold(before_ms)]
        with self._metadata.read() as txn:
            unnamed = [one for one in found if not _is_chunk(txn, one)]
            named = _named(txn, {one.orphan.name for one in unnamed}) if unnamed else set()
            named |= self._adopted(txn) if unnamed else set()
        return [one.orphan for one in unnamed if one.orphan.name not in named and self._is_ours(one.orphan)]

    def _adopted(self, txn: ReadTransaction) -> set[str]:
        """Objects of our own location that were adopted: theirs, whatever their names look like (invariant 5)."""
        if self._storage is None:
            return set()
        return locations.foreign_names_below(txn, locations.location(txn, self._location_id))

    def discard(self, orphans: Iterable[Orphan]) -> None:
        """Make orphans garbage that is due now."""
        for orphan in orphans:
            location = self._location_id if orphan.tier is Tier.COLD else LocationId(0)
            with self._metadata.write() as txn:
                garbage = GarbageRecord(
                    due_ms=txn.now_ms,
                    tier=orphan.tier,
                    location_id=location,
                    name=orphan.name,
                    length=orphan.length,
                )
                chains.add_garbage(txn, garbage)

    def _local(self, before_ms: int) -> Iterator[_Found]:
        for name in self._files.names():
            parsed = LOCAL_NAME.fullmatch(name)
            if parsed is None:
                continue
            try:
                length, modified_ms = self._files.stat(name)
            except NotFound:
                continue  # collected meanwhile
            if modified_ms <= before_ms:
                orphan = Orphan(Tier.LOCAL, name, length)
                yield _Found(orphan, SegmentId(int(parsed["segment"], 16)), int(parsed["start"], 16))

    def _cold(self, before_ms: int) -> Iterator[_Found]:
        if self._storage is None:
            return
        with self._metadata.read() as txn:
            epoch = txn.store.store_epoch
        for listed in self._storage.list(SEGMENTS_PREFIX):
            parsed = COLD_NAME.fullmatch(listed.name)
            if parsed is None or int(parsed["epoch"]) > epoch or listed.modified_ms > before_ms:
                continue
            orphan = Orphan(Tier.COLD, listed.name, listed.length_bytes)
            yield _Found(orphan, SegmentId(int(parsed["segment"])), int(parsed["start"]))

    def _is_ours(self, orphan: Orphan) -> bool:
        """Objects say which store made them; another store's are none of our business."""
        if orphan.tier is Tier.LOCAL or self._storage is None:
            return True
        try:
            return self._storage.stat(orphan.name).metadata.get("store") == self._metadata.store_id
        except NotFound:
            return False


def _is_chunk(txn: ReadTransaction, found: _Found) -> bool:
    """Whether the chunk that the name tells of is there and names it: true of nearly all, at two gets each."""
    key = keys.chunk(found.segment_id, found.orphan.tier, found.start_offset)
    chunk: ChunkRecord | None = txn.get(CHUNKS, key)
    holder = txn.get(OBJECTS, keys.u64(chunk.object_id)) if chunk is not None else None
    return holder is not None and holder.name == found.orphan.name


def _named(txn: ReadTransaction, names: set[str]) -> set[str]:
    """Which of the names any record mentions; one pass over all objects."""
    found: set[str] = set()
    for rows in (txn.scan(OBJECTS), txn.scan(INTENTS), txn.scan(GARBAGE)):
        found.update(row.name for _, row in rows if row.name in names)
    return found
