"""Orphans: files and objects of this store that no record names, found by listing.

A crash leaves none without an intent, except chunk files whose first append was never committed (`strays`); a restored
backup or a server that carries out a PUT late leaves others. The listing precedes the reading of the records, so that
what is made meanwhile is never taken for an orphan.

A chunk file has no record until its first append commits, and no clock tells how long that takes. So a local file is
looked at again and unlinked inside one write transaction: no commit can come between, and an append that commits later
finds its file without a name and writes its bytes again (segments/append.py).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, doing, unseen
from tierfs.base.words import object_names
from tierfs.base.words.errors import Archived, DataLoss, NotFound, TierfsError
from tierfs.base.words.types import ByteRange, ChunkState, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore import local_files
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata.records import ChunkRecord, GarbageRecord, ObjectRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, GARBAGE, INTENTS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.ledgers.owners import (
    companions,
    has_ledgers,
    is_of_ledger,
    is_ours,
    ledger_objects,
    unchunked_names,
)
from tierfs.tiering.packs import format as packs
from tierfs.tiering.packs.format import PACKS_PREFIX, read_index

log = logging.getLogger(__name__)

SEGMENTS_PREFIX = "segments/"

# Files per write transaction. A guess: unlinking 64 MiB takes milliseconds, and writers wait for all of it.
_UNLINKED_TOGETHER = 16

# Files, or rows of objects, per step of a walk: some 10 ms.
_LOOKED_AT_TOGETHER = 500

# Files to look for among all objects at once: some 5 MB (a guess). Chunks that `concat` moved are among them.
_MOST_UNNAMED = 10_000


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file or object that no record names."""

    tier: Tier
    name: str
    length: int
    next_id: int
    """The store's next id when no record named it: an object that names it since has at least this one."""
    location_id: LocationId = LocationId(0)
    """Of an object."""


@dataclass(frozen=True, slots=True)
class _Unnamed:
    tier: Tier
    name: str
    length: int
    segment_id: SegmentId = SegmentId(0)
    start_offset: int = 0
    object_id: ObjectId | None = None
    """Of a pack, by its name."""


class OrphanFinder:
    """Finds and discards the orphans among one store's files and in its cold location, or its archive place."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, storage: ChunkStorage | None, location_id: LocationId
    ) -> None:
        """Without a `storage` only files are looked at."""
        self._metadata = metadata
        self._files = files
        self._storage = storage
        self._location_id = location_id

    def find(self, *, grace_ms: int, report: OnProgress = unseen) -> list[Orphan]:
        """Return orphans older than `grace_ms`: by the disk's clock and the server's. Only what this store made."""
        before_ms = self._metadata.clock.now_ms() - grace_ms
        local = self._local(Meter(report, noun="local file").each(self._files.names()), before_ms)
        return self._orphans_among(chain(local, self._listed(before_ms, report)), report)

    def find_objects(self, *, grace_ms: int, report: OnProgress = unseen) -> list[Orphan]:
        """Do so among the objects alone."""
        return self._orphans_among(self._listed(self._metadata.clock.now_ms() - grace_ms, report), report)

    def _listed(self, before_ms: int, report: OnProgress) -> Iterator[_Unnamed]:
        return Meter(report, noun="cold object").each(self._cold(before_ms), lambda candidate: candidate.name)

    def _orphans_among(self, listed: Iterator[_Unnamed], report: OnProgress) -> list[Orphan]:
        unnamed: list[_Unnamed] = []
        while some := list(islice(listed, _LOOKED_AT_TOGETHER)):
            with self._metadata.read() as txn:
                unnamed += [candidate for candidate in some if not _is_chunk(txn, candidate)]
        report(doing("comparing with the records of objects"))
        with self._metadata.read() as txn:
            next_id = txn.store.next_id
            named = _named(txn, {candidate.name for candidate in unnamed}) if unnamed else set()
            named |= self._adopted(txn) if unnamed else set()
        orphans = (
            Orphan(candidate.tier, candidate.name, candidate.length, next_id, self._location_id)
            for candidate in unnamed
            if candidate.name not in named
        )
        return [orphan for orphan in orphans if self._is_ours(orphan)]

    def _adopted(self, txn: ReadTransaction) -> set[str]:
        """Return the adopted objects in our own location: foreign, whatever their names look like (invariant 5)."""
        if self._storage is None:
            return set()
        return policies.foreign_names_below(txn, policies.location(txn, self._location_id))

    def discard(self, orphans: Iterable[Orphan], report: OnProgress = unseen) -> Collected:
        """Unlink the files among the orphans; make the objects garbage that is due now.

        Returns the result for the files.
        """
        files: list[Orphan] = []
        discarded = Meter(report, noun="orphan")
        for orphan in orphans:
            if orphan.tier is Tier.LOCAL:
                files.append(orphan)
                continue
            with self._metadata.write() as txn:
                chains.discard(txn, orphan.location_id, orphan.name, orphan.length)
            discarded(orphan.length, orphan.name, 1)
        total = Collected()
        for at in range(0, len(files), _UNLINKED_TOGETHER):
            some = files[at : at + _UNLINKED_TOGETHER]
            total = self._unlink(some, total)
            discarded(sum(orphan.length for orphan in some), some[-1].name, len(some))
        return total

    def _unlink(self, orphans: Sequence[Orphan], total: Collected) -> Collected:
        """Unlink those that are still orphans, while nothing can commit."""
        with self._metadata.write() as txn:
            first = min(orphan.next_id for orphan in orphans)
            named = chains.objects_named(txn, {orphan.name for orphan in orphans}, first_id=first)
            for orphan in orphans:
                if orphan.name in named:
                    continue
                try:
                    self._files.delete(orphan.name)
                except TierfsError as exc:
                    log.warning("cannot delete the unreferenced %s: %s", orphan.name, exc)
                    total = total.plus(Collected.failure(orphan.name, exc))
                else:
                    total = total.plus(Collected(deleted=1, bytes=orphan.length))
        return total

    def strays(self, *, grace_ms: int) -> Iterator[Sequence[Orphan]]:
        """Yield local orphans older than `grace_ms` that hold no byte of a segment that is not elsewhere.

        In steps of some 10 ms, between which others work: most of what is yielded is empty.
        """
        before_ms = self._metadata.clock.now_ms() - grace_ms
        unnamed: dict[str, _Unnamed] = {}
        for directory in self._files.directories():
            names = self._files.names_in(directory)
            while some := list(islice(names, _LOOKED_AT_TOGETHER)):
                candidates = list(self._local(some, before_ms))
                with self._metadata.read() as txn:
                    unnamed.update({each.name: each for each in candidates if not _is_chunk(txn, each)})
                yield ()
            if len(unnamed) >= _MOST_UNNAMED:
                yield from self._strays_among(unnamed)
        yield from self._strays_among(unnamed)

    def _strays_among(self, unnamed: dict[str, _Unnamed]) -> Iterator[Sequence[Orphan]]:
        """Yield those that no garbage and no object names, at last; clear `unnamed`.

        A pass over all rows, because a chunk may have moved to another segment.
        """

        def leave_out(txn: ReadTransaction, rows: Sequence[tuple[bytes, GarbageRecord | ObjectRecord]]) -> int:
            for _, record in rows:
                unnamed.pop(record.name, None)
            return txn.store.next_id

        next_ids = [0]
        if unnamed:
            for _ in batches(self._metadata.read, GARBAGE, _LOOKED_AT_TOGETHER, leave_out):
                yield ()
            for next_id in batches(self._metadata.read, OBJECTS, _LOOKED_AT_TOGETHER, leave_out):
                next_ids.append(next_id)
                yield ()
        with self._metadata.read() as txn:
            strays = [each for each in unnamed.values() if not _may_hold_bytes(txn, each)]
        unnamed.clear()
        yield [Orphan(Tier.LOCAL, each.name, each.length, next_ids[-1]) for each in strays]

    def _local(self, names: Iterable[str], before_ms: int) -> Iterator[_Unnamed]:
        for name in names:
            parsed = local_files.NAME.fullmatch(name)
            if parsed is None:
                continue
            try:
                length, modified_ms = self._files.stat(name)
            except NotFound:
                continue  # collected meanwhile
            if modified_ms <= before_ms:
                segment_id, start = SegmentId(int(parsed["segment"], 16)), int(parsed["start"], 16)
                yield _Unnamed(Tier.LOCAL, name, length, segment_id, start)

    def _cold(self, before_ms: int) -> Iterator[_Unnamed]:
        if self._storage is None:
            return
        with self._metadata.read() as txn:
            epoch, expected = txn.store.store_epoch, has_ledgers(txn)
        for listed in ledger_objects(self._storage, expected=expected):
            if listed.modified_ms <= before_ms:
                yield _Unnamed(Tier.COLD, listed.name, listed.length_bytes)
        for listed in self._storage.list(PACKS_PREFIX):
            pack = packs.parse_name(listed.name)
            if pack is not None and pack.store_epoch <= epoch and listed.modified_ms <= before_ms:
                yield _Unnamed(Tier.COLD, listed.name, listed.length_bytes, object_id=pack.object_id)
        for listed in self._storage.list(SEGMENTS_PREFIX):
            parsed = object_names.CHUNK.fullmatch(listed.name)
            if parsed is None or int(parsed["epoch"]) > epoch or listed.modified_ms > before_ms:
                continue
            segment_id, start = SegmentId(int(parsed["segment"])), int(parsed["start"])
            yield _Unnamed(Tier.COLD, listed.name, listed.length_bytes, segment_id, start)

    def _epoch(self) -> int:
        with self._metadata.read() as txn:
            return txn.store.store_epoch

    def _is_ours(self, orphan: Orphan) -> bool:
        """Return whether this store made an object, which its metadata tell; another store's are left alone."""
        if orphan.tier is Tier.LOCAL or self._storage is None:
            return True
        try:
            if orphan.name.startswith(PACKS_PREFIX):
                with suppress(Archived):  # then its metadata tell
                    return read_index(self._storage, orphan.name, orphan.length).store_id == self._metadata.store_id
            metadata = self._storage.stat(orphan.name).metadata
            if is_of_ledger(orphan.name):
                return is_ours(metadata, self._metadata.store_id, self._epoch())
            return metadata.get("store") == self._metadata.store_id
        except (NotFound, DataLoss):
            return False


def chunk_objects(storage: ChunkStorage) -> Iterator[StoredObject]:
    """Yield everything in a cold tier that may hold chunks, in the order of a listing."""
    yield from storage.list(PACKS_PREFIX)
    yield from storage.list(SEGMENTS_PREFIX)


def _is_chunk(txn: ReadTransaction, candidate: _Unnamed) -> bool:
    """Return whether the chunk that a name tells of, or a pack's object, is there: true of nearly all, at two gets."""
    object_id = candidate.object_id
    if object_id is None and not candidate.segment_id:
        return False
    if object_id is None:
        chunk: ChunkRecord | None = txn.get(
            CHUNKS, tables.chunk(candidate.segment_id, candidate.tier, candidate.start_offset)
        )
        object_id = None if chunk is None else chunk.object_id
    record = None if object_id is None else txn.get(OBJECTS, tables.u64(object_id))
    return record is not None and record.name == candidate.name


def _may_hold_bytes(txn: ReadTransaction, candidate: _Unnamed) -> bool:
    """Return whether a file may hold bytes of its segment that no good chunk holds: rows may be missing, or lost."""
    segment = directories.segment(txn, candidate.segment_id)
    if segment is None:
        return any(_has_chunks(txn, candidate.segment_id, tier) for tier in Tier)
    end = min(candidate.start_offset + candidate.length, segment.length)
    wanted = ByteRange(min(max(candidate.start_offset, segment.start_offset), end), end)
    held = (chunk for tier in Tier for chunk in chains.overlapping(txn, segment.id, tier, wanted))
    good = [chunk.range for chunk in held if chunk.state is ChunkState.GOOD and _has_object(txn, chunk)]
    return bool(wanted) and not ranges.covers(ranges.union(good), wanted)


def _has_chunks(txn: ReadTransaction, segment_id: SegmentId, tier: Tier) -> bool:
    return next(chains.chunks(txn, segment_id, tier), None) is not None


def _has_object(txn: ReadTransaction, chunk: ChunkRecord) -> bool:
    return txn.get(OBJECTS, tables.u64(chunk.object_id)) is not None


def _named(txn: ReadTransaction, names: Collection[str]) -> set[str]:
    """Return those of the names that any record mentions; one pass over all objects."""
    others = (row.name for rows in (txn.scan(INTENTS), txn.scan(GARBAGE)) for _, row in rows)
    named = chains.objects_named(txn, names) | {name for name in others if name in names}
    return named | companions(txn).keys() | unchunked_names(txn)
