"""Inventory of a bucket: a description of each object, on disk: memory grows neither with them nor with segments.

Names contain all that is needed, and survive a copy of the bucket. The metadata of every object are read as well
(HEAD), several in parallel: they contain the store, and for objects of older versions the CRC32C. An object that
contradicts itself or has no description is not linked and reported with the reason; nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tierfs.app.batches.recovery import FoundVersions, batch_objects
from tierfs.app.found_objects import FoundObject, LeftOver, Storages, in_archive
from tierfs.app.recovery.described_object import parsed, parsed_pack
from tierfs.app.unrestored import Unrestored
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.errors import DataLoss, NotFound, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.base.words.types import SegmentId
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import reader, store_mark
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.scratch import ScratchRows
from tierfs.engine.metadata.store import new_id
from tierfs.tiering.garbage.orphans import chunk_objects
from tierfs.tiering.ledgers.owners import ledger_objects
from tierfs.tiering.objects import JOBS_PREFIX
from tierfs.tiering.packs.format import PACKS_PREFIX

log = logging.getLogger(__name__)

T = TypeVar("T")

# HEAD requests in parallel: each is a round trip and hardly any work; 16 hide some 20 ms of it per object.
HEADS_AT_ONCE = 16

# `bytes` is a number in the class below.
_Key = bytes

# Tables of an inventory. A run is a segment of any store: its id and the digest of its path.
_ROWS, _RUNS, _PATHS, _DIRECTORIES, _ORDER = b"rows", b"runs", b"paths", b"directories", b"order"
_TABLES = (_ROWS, _RUNS, _PATHS, _DIRECTORIES, _ORDER)

# A path is longer than a key of LMDB may be. Two of a thousand million share a digest with a probability of 10^-21.
_DIGEST_BYTES = 16
_RUN_BYTES = tables.U64_BYTES + _DIGEST_BYTES

_fields_of = attrgetter(*(each.name for each in fields(FoundObject)))


@dataclass(frozen=True, slots=True)
class Group:
    """The objects of one segment: the same store, id and name."""

    store_id: str
    segment_id: SegmentId
    path: str
    epoch: int
    """Epoch of its newest object."""
    objects: list[FoundObject]


@dataclass(slots=True)
class Inventory:
    """The objects of a bucket, on disk: memory grows neither with them nor with their segments. Close it."""

    scratch: ScratchRows
    marked: str = ""
    """The store named by the mark at the root of the place."""
    stores: Counter[str] = field(default_factory=Counter)
    """Number of objects by the store that wrote them."""
    has_ledgers: bool = False
    """Whether there are objects of ledgers, of any store; recovery/ledgers.py reads them."""
    bytes: int = 0
    newest_epoch: int = 0
    highest_segment: int = 0
    left: list[LeftOver] = field(default_factory=list)
    names: str = ""
    """Digest of all listed names, to detect writes and deletions during the recovery."""
    batches: list[FoundVersions] = field(default_factory=list)
    """Committed versions of distributed writes."""
    unproven: list[str] = field(default_factory=list)
    """Objects that were linked without a known CRC32C to compare them with."""
    _parent: str = ""
    """Directory of the last segment, which is counted."""
    _settled: str = ""
    """Store of the objects that do not name theirs."""

    def has_name(self, group: Group) -> bool:
        """Return whether a segment can have the name in its objects: it is the newest one, and not a directory."""
        digest = _digest(group.path)
        newest = self._read(_PATHS, digest)[group.store_id]
        return newest == [group.epoch, group.segment_id] and self.scratch.get(_DIRECTORIES, digest) is None

    @property
    def store_id(self) -> str:
        """The store to rebuild: the one of the mark, else that of most objects.

        Raises NotFound when there are no objects, WrongColdTier when none of them is of the store that the mark names.
        """
        if not self.stores and self.marked and (self.has_ledgers or self.batches or self.left):
            return self.marked  # versions of distributed writes, or objects to list, are worth a store
        if not self.stores:
            raise NotFound("no tierfs objects found; nothing to recover")
        if self.marked in self.stores:
            return self.marked
        if self.marked:
            raise WrongColdTier(
                f"the mark {MARK_NAME} is of the store {printable(self.marked)}, but no object there belongs to that "
                "store",
                remedy=f"check bucket and prefix; to rebuild the store of the objects, remove {MARK_NAME} from there",
            )
        return self.stores.most_common(1)[0][0]

    @property
    def segments(self) -> int:
        """Number of segments that `groups` yields."""
        self._put_in_order()
        return self.scratch.count(_ORDER)

    def settle(self, store_id: str) -> None:
        """Assign the objects that do not name their store to this one."""
        self._settled = store_id
        unnamed = self.stores.pop("", 0)
        if not unnamed:
            return
        self.stores[store_id] += unnamed
        for table in (_RUNS, _PATHS):
            for key, value in self.scratch.scan(table):
                newest = json.loads(value)
                if "" in newest:
                    unnamed_newest = newest.pop("")
                    newest[store_id] = max(unnamed_newest, newest.get(store_id, unnamed_newest))
                    self.scratch.put(table, key, json.dumps(newest).encode())

    def groups(self) -> Iterator[Group]:
        """Yield the segments of the store, those with the newest objects first, each with all its objects.

        Before ids jumped with every epoch, two owners could give one id to two segments: the newer one keeps it.
        """
        self._put_in_order()
        store_id = self.store_id
        for key, _ in self.scratch.scan(_ORDER):
            run = key[tables.U64_BYTES :]
            objects = [row for row in self._objects(run) if row.store_id == store_id]
            epoch = self._read(_RUNS, run)[store_id]
            yield Group(store_id, SegmentId(tables.read_u64(run)), objects[0].path, epoch, objects)

    def foreign(self) -> Iterator[LeftOver]:
        """Yield the objects of other stores, which are not linked."""
        store_id = self.store_id
        for run, value in self.scratch.scan(_RUNS):
            if json.loads(value).keys() != {store_id}:
                rows = (row for row in self._objects(run) if row.store_id != store_id)
                yield from (LeftOver(row.label, f"another store wrote it: {row.store_id}") for row in rows)

    def add(self, row: FoundObject, number: int) -> None:
        """Count an object, the only one of its number."""
        self.stores[row.store_id] += 1
        self.bytes += row.length_bytes
        self.newest_epoch = max(self.newest_epoch, row.epoch)
        self.highest_segment = max(self.highest_segment, row.segment_id)
        digest = _digest(row.path)
        run = tables.u64(row.segment_id) + digest
        self.scratch.put(_ROWS, run + tables.u64(number), json.dumps(_fields_of(row)).encode())
        self._keep_newest(_RUNS, run, row.store_id, row.epoch)
        self._keep_newest(_PATHS, digest, row.store_id, [row.epoch, row.segment_id])
        parent = row.path.rpartition("/")[0]
        if parent != self._parent:
            self._parent = parent
            parts = parent.split("/")
            for depth in range(1, len(parts) + 1):
                self.scratch.put(_DIRECTORIES, _digest("/".join(parts[:depth])), b"")

    def close(self) -> None:
        """Delete it from the disk; idempotent."""
        self.scratch.close()

    def _keep_newest(self, table: _Key, key: _Key, store_id: str, newest: int | list[int]) -> None:
        known = self._read(table, key)
        if store_id not in known or newest > known[store_id]:
            self.scratch.put(table, key, json.dumps({**known, store_id: newest}).encode())

    def _put_in_order(self) -> None:
        """Write the order of `groups`, once: the objects are complete, and each names its store."""
        if self.scratch.count(_ORDER):
            return
        store_id = self.store_id
        for run, value in self.scratch.scan(_RUNS):
            epoch = json.loads(value).get(store_id)
            if epoch is not None:
                self.scratch.put(_ORDER, tables.u64(tables.MAX_U64 - epoch) + run, b"")

    def _read(self, table: _Key, key: _Key) -> dict[str, Any]:
        value = self.scratch.get(table, key)
        return {} if value is None else json.loads(value)

    def _objects(self, run: _Key) -> Iterator[FoundObject]:
        for _, value in self.scratch.scan(_ROWS, run):
            row = FoundObject(*json.loads(value))
            yield row if row.store_id else replace(row, store_id=self._settled)


def _digest(path: str) -> bytes:
    return hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest()


class _Names:
    """A digest of the names of a listing."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def passing(self, items: Iterable[StoredObject]) -> Iterator[StoredObject]:
        """Yield the items and add each name to the digest."""
        yield from self.each(items, lambda item: item.name)

    def each(self, items: Iterable[T], name_of: Callable[[T], str]) -> Iterator[T]:
        """Do so for things that have a name."""
        for item in items:
            self._hash.update(name_of(item).encode(errors="surrogatepass") + b"\0")  # a file's may be no UTF-8
            yield item

    @property
    def digest(self) -> str:
        """Digest of all names so far."""
        return self._hash.hexdigest()


def names_now(storages: Storages) -> str:
    """Return the current value of `Inventory.names`. Costs a listing."""
    names = _Names()
    listed = (each.item for each in _listed(storages))
    deque(names.passing(chain(listed, storages.cold.list(JOBS_PREFIX))), maxlen=0)
    return names.digest


class _Listed(NamedTuple):
    """An object of a listing, and its place."""

    item: StoredObject
    in_archive: bool


def _listed(storages: Storages) -> Iterator[_Listed]:
    """Yield all that may hold chunks, of the cold tier first."""
    yield from (_Listed(item, in_archive=False) for item in chunk_objects(storages.cold))
    if storages.archive is not None:
        yield from (_Listed(item, in_archive=True) for item in chunk_objects(storages.archive))


def take(
    storages: Storages, path: Path, report: OnProgress = unseen, unrestored: Unrestored | None = None
) -> Inventory:
    """List and identify every object below packs/, segments/ and uploads/, on disk in `path`. The caller closes it.

    Objects that cannot be read yet are missing in it, and counted in `unrestored`. The mark is that of the cold tier,
    or of the archive place if that alone has it.
    """
    marked = (_marked(each) for each in (storages.cold, storages.archive) if each is not None)
    inventory = Inventory(ScratchRows(path, _TABLES), next(filter(None, marked), ""))
    try:
        _fill(inventory, storages, path, report, unrestored or Unrestored(storages.cold))
    except BaseException:
        inventory.close()
        raise
    return inventory


def _fill(inventory: Inventory, storages: Storages, path: Path, report: OnProgress, unrestored: Unrestored) -> None:
    storage = storages.cold

    def look(listed: _Listed) -> Sequence[FoundObject | LeftOver]:
        item, place = listed.item, storages.at(in_archive=listed.in_archive)
        try:
            if unrestored.holds(item, place):
                return []
            rows = _described(place, item)
        except (DataLoss, NotFound) as exc:
            rows = [LeftOver(item.name, str(exc))]
        return [_in_archive(row) for row in rows] if listed.in_archive else rows

    names = _Names()
    items = names.each(_listed(storages), lambda each: each.item.name)
    with Pool(HEADS_AT_ONCE, "tierfs-recover") as pool:
        listed = Meter(report, noun="listed object").each(items, lambda each: each.item.name)
        looked = pool.in_order(look, listed)
        jobs = unrestored.passing(names.passing(storage.list(JOBS_PREFIX)))
        written = batch_objects(storage, jobs, path, inventory.batches)
        for number, row in enumerate(chain(chain.from_iterable(looked), written)):
            if isinstance(row, LeftOver):
                inventory.left.append(row)
            else:
                inventory.add(row, number)
    inventory.names = names.digest
    inventory.has_ledgers = next(ledger_objects(storage), None) is not None
    if "" in inventory.stores:
        named = [store_id for store_id, _ in inventory.stores.most_common() if store_id]
        inventory.settle(inventory.marked or (named[0] if named else _journaled(storage) or new_id()))


def _described(storage: ChunkStorage, item: StoredObject) -> list[FoundObject | LeftOver]:
    return parsed_pack(storage, item) if item.name.startswith(PACKS_PREFIX) else [parsed(storage.stat(item.name))]


def _in_archive(row: FoundObject | LeftOver) -> FoundObject | LeftOver:
    if isinstance(row, FoundObject):
        return replace(row, in_archive=True)
    return LeftOver(in_archive(row.name), row.why)


def _marked(storage: ChunkStorage) -> str | None:
    """Return the store named by the mark at the root of the place."""
    try:
        mark = store_mark.read(storage)
    except DataLoss as exc:
        log.warning("cannot read the mark: %s", exc)
        return None
    return None if mark is None else mark.store_id


def _journaled(storage: ChunkStorage) -> str | None:
    """Return the store that the rest of a journal names."""
    listing = reader.list_journal(storage)
    for items, read in ((listing.slots, reader.read_entry), (listing.checkpoints, reader.read_manifest)):
        for slot in sorted(items, reverse=True):
            try:
                return read(storage, items[slot]).store_id
            except DataLoss as exc:
                log.info("%s has no store id: %s", items[slot].name, exc)
    return None
