"""Inventory of a bucket: a description of each object, one line each in a file: memory does not grow with them.

Names contain all that is needed, and survive a copy of the bucket. The metadata of every object are read as well
(HEAD), several in parallel: they contain the store, and for objects of older versions the CRC32C. An object that
contradicts itself or has no description is not linked and reported with the reason; nothing is ever deleted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from tierfs.app.batches.recovery import FoundVersions, batch_objects
from tierfs.app.found_objects import FoundObject, LeftOver, checked_path, compressed_bytes
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import names, object_names
from tierfs.base.words.errors import DataLoss, NotFound, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.base.words.types import AttemptId, ByteRange, SegmentId
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import reader, store_mark
from tierfs.engine.metadata import untrusted
from tierfs.engine.metadata.store import new_id
from tierfs.tiering.garbage.orphans import chunk_objects
from tierfs.tiering.ledgers.owners import ledger_objects
from tierfs.tiering.objects import JOBS_PREFIX, object_name
from tierfs.tiering.packs.format import PACKS_PREFIX, parse_name, read_pack

log = logging.getLogger(__name__)

# HEAD requests in parallel: each is a round trip and hardly any work; 16 hide some 20 ms of it per object.
HEADS_AT_ONCE = 16

_FORMAT = "1"


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
class _InventoryRun:
    """Lines of the inventory's file that name one segment, of any store."""

    segment_id: int
    path: str
    places: list[tuple[int, int]] = field(default_factory=list)
    """Offset and number of consecutive lines; packs name a segment between others."""
    epochs: dict[str, int] = field(default_factory=dict)
    """Newest epoch by store."""


@dataclass(slots=True)
class Inventory:
    """The objects of a bucket, in a file; memory grows with the segments, not with their objects."""

    path: Path
    marked: str = ""
    """The store named by the mark at the root of the place."""
    stores: Counter[str] = field(default_factory=Counter)
    """Number of objects by the store that wrote them."""
    has_ledgers: bool = False
    """Whether there are objects of ledgers, of any store; recovery/ledgers.py reads them."""
    bytes: int = 0
    newest_epoch: int = 0
    highest_segment: int = 0
    owners: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Newest epoch and highest segment id by store and path: of two segments of one name the newer one keeps it."""
    directories: set[str] = field(default_factory=set)
    """Paths of the directories above segments."""
    left: list[LeftOver] = field(default_factory=list)
    names: str = ""
    """Digest of all listed names, to detect writes and deletions during the recovery."""
    batches: list[FoundVersions] = field(default_factory=list)
    """Committed versions of distributed writes."""
    unproven: list[str] = field(default_factory=list)
    """Objects that were linked without a known CRC32C to compare them with."""
    _runs: dict[tuple[int, str], _InventoryRun] = field(default_factory=dict)
    _last: tuple[int, str] = (0, "")
    _settled: str = ""
    """Store of the objects that do not name theirs."""

    def has_name(self, group: Group) -> bool:
        """Return whether a segment can have the name in its objects: it is the newest one, and not a directory."""
        newest = self.owners[group.store_id, group.path]
        return newest == (group.epoch, group.segment_id) and group.path not in self.directories

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
        store_id = self.store_id
        return sum(store_id in run.epochs for run in self._runs.values())

    def settle(self, store_id: str) -> None:
        """Assign the objects that do not name their store to this one."""
        self._settled = store_id
        unnamed = self.stores.pop("", 0)
        if unnamed:
            self.stores[store_id] += unnamed
        for run in self._runs.values():
            if "" in run.epochs:
                run.epochs[store_id] = max(run.epochs.pop(""), run.epochs.get(store_id, 0))
        for key in [key for key in self.owners if not key[0]]:
            newest = self.owners.pop(key)
            settled = (store_id, key[1])
            self.owners[settled] = max(newest, self.owners.get(settled, newest))

    def groups(self) -> Iterator[Group]:
        """Yield the segments of the store, those with the newest objects first, each with all its objects.

        Before ids jumped with every epoch, two owners could give one id to two segments: the newer one keeps it.
        """
        ours = [run for run in self._runs.values() if self.store_id in run.epochs]
        for run in sorted(ours, key=lambda run: -run.epochs[self.store_id]):
            objects = [row for row in self._read(run) if row.store_id == self.store_id]
            epoch = run.epochs[self.store_id]
            yield Group(self.store_id, SegmentId(run.segment_id), run.path, epoch, objects)

    def foreign(self) -> Iterator[LeftOver]:
        """Yield the objects of other stores, which are not linked."""
        for run in self._runs.values():
            if run.epochs.keys() != {self.store_id}:
                rows = (row for row in self._read(run) if row.store_id != self.store_id)
                yield from (LeftOver(row.label, f"another store wrote it: {row.store_id}") for row in rows)

    def add(self, row: FoundObject, offset: int) -> None:
        """Count an object whose line begins at `offset` of the file."""
        self.stores[row.store_id] += 1
        self.bytes += row.length_bytes
        self.newest_epoch = max(self.newest_epoch, row.epoch)
        self.highest_segment = max(self.highest_segment, row.segment_id)
        name = (row.segment_id, row.path)
        run = self._runs.get(name)
        if run is None:
            run = self._runs[name] = _InventoryRun(row.segment_id, row.path)
            parts = row.path.split("/")
            self.directories.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if self._last == name:
            run.places[-1] = (run.places[-1][0], run.places[-1][1] + 1)
        else:
            run.places.append((offset, 1))
        self._last = name
        run.epochs[row.store_id] = max(run.epochs.get(row.store_id, 0), row.epoch)
        key = (row.store_id, row.path)
        self.owners[key] = max(self.owners.get(key, (0, 0)), (row.epoch, row.segment_id))

    def _read(self, run: _InventoryRun) -> list[FoundObject]:
        rows: list[FoundObject] = []
        with self.path.open("rb") as file:
            for offset, count in run.places:
                file.seek(offset)
                rows += [FoundObject(**json.loads(line)) for line in islice(file, count)]
        return [row if row.store_id else replace(row, store_id=self._settled) for row in rows]


class _Names:
    """A digest of the names of a listing."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def passing(self, items: Iterable[StoredObject]) -> Iterator[StoredObject]:
        """Yield the items and add each name to the digest."""
        for item in items:
            self._hash.update(item.name.encode(errors="surrogatepass") + b"\0")  # a file's may be no UTF-8
            yield item

    @property
    def digest(self) -> str:
        """Digest of all names so far."""
        return self._hash.hexdigest()


def names_now(storage: ChunkStorage) -> str:
    """Return the current value of `Inventory.names`. Costs a listing."""
    names = _Names()
    deque(names.passing(chain(chunk_objects(storage), storage.list(JOBS_PREFIX))), maxlen=0)
    return names.digest


def take(storage: ChunkStorage, path: Path, report: OnProgress = unseen) -> Inventory:
    """List and identify every object below packs/, segments/ and uploads/; write the inventory's file to `path`."""
    inventory = Inventory(path, _marked(storage) or "")

    def look(item: StoredObject) -> Sequence[FoundObject | LeftOver]:
        try:
            if item.name.startswith(PACKS_PREFIX):
                return parsed_pack(storage, item)
            return [parsed(storage.stat(item.name))]
        except (DataLoss, NotFound) as exc:
            return [LeftOver(item.name, str(exc))]

    names = _Names()
    items, offset = names.passing(chunk_objects(storage)), 0
    with path.open("wb") as file, Pool(HEADS_AT_ONCE, "tierfs-recover") as pool:
        listed = Meter(report, noun="listed object").each(items, lambda item: item.name)
        looked = pool.in_order(look, listed)
        written = batch_objects(storage, names.passing(storage.list(JOBS_PREFIX)), path, inventory.batches)
        for row in chain(chain.from_iterable(looked), written):
            if isinstance(row, LeftOver):
                inventory.left.append(row)
                continue
            inventory.add(row, offset)
            offset += file.write(json.dumps(asdict(row)).encode() + b"\n")
    inventory.names = names.digest
    inventory.has_ledgers = next(ledger_objects(storage), None) is not None
    if "" in inventory.stores:
        named = [store_id for store_id, _ in inventory.stores.most_common() if store_id]
        inventory.settle(inventory.marked or (named[0] if named else _journaled(storage) or new_id()))
    return inventory


def parsed_pack(storage: ChunkStorage, item: StoredObject) -> list[FoundObject | LeftOver]:
    """Read the entries of a pack's index. Raises DataLoss when the pack contradicts itself.

    An entry whose segment was being removed when the pack was made is left out alone: the others are still good.
    """
    contents = read_pack(storage, item.name, item.length_bytes)
    index, is_compressed = contents.index, contents.section is not None
    named = parse_name(item.name)
    assert named is not None, "its index was read by its name"
    described = [
        FoundObject(
            name=item.name,
            etag=item.etag,
            modified_ms=item.modified_ms,
            store_id=index.store_id,
            segment_id=entry.segment_id,
            path=entry.path,
            start=entry.range.start,
            end=entry.range.end,
            epoch=index.store_epoch,
            attempt=index.attempt,
            crc32c=entry.crc32c,
            pack_bytes=contents.payload_bytes if is_compressed else item.length_bytes,
            object_offset=entry.object_offset,
            appended=named.object_id if index.appended else 0,
            compressed_bytes=item.length_bytes if is_compressed else 0,
        )
        for entry in index.entries
    ]
    return [_kept_entry(entry) for entry in described]


def _kept_entry(entry: FoundObject) -> FoundObject | LeftOver:
    if names.is_removed(entry.path):
        return LeftOver(entry.label, "its segment was being removed")
    checked_path(entry)
    return entry


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


def parsed(item: StoredObject) -> FoundObject:
    """Describe an object by its name, and by its user metadata unless a copy dropped them.

    A name with the CRC32C of the bytes decides if a copy altered the metadata. Raises DataLoss when the object is not
    a store's, or when an older name and the metadata contradict each other, or the size.
    """
    named = _named(item)
    if item.metadata.get("format") == _FORMAT:
        try:
            return _agreed(named, _described(item), item.length_bytes)
        except DataLoss as exc:
            if named is None or named.crc32c is None:
                raise
            log.info("%s: %s; the CRC32C in its name is used", printable(item.name), exc)
            named = replace(named, store_id=item.metadata.get("store", ""))
    if named is None:
        raise DataLoss("neither its name nor its metadata are of tierfs")
    _check(named, item.length_bytes)
    return named


def _agreed(named: FoundObject | None, described: FoundObject, length_bytes: int) -> FoundObject:
    """Return the description by metadata. Raises DataLoss if the name or the size contradicts it."""
    _check(described, length_bytes)
    if named is None or (named.crc32c is not None and named.crc32c != described.crc32c):
        raise DataLoss("its metadata contradicts its name")
    return described


def _named(item: StoredObject) -> FoundObject | None:
    """Return the description by the name alone; None for a name that tierfs gives no object."""
    parsed = object_names.CHUNK.fullmatch(item.name)
    if parsed is None:
        return None
    return FoundObject(
        name=item.name,
        etag=item.etag,
        modified_ms=item.modified_ms,
        store_id="",
        segment_id=int(parsed["segment"]),
        path=parsed["path"],
        start=int(parsed["start"]),
        end=int(parsed["end"]),
        epoch=int(parsed["epoch"]),
        attempt=parsed["attempt"],
        crc32c=None if parsed["crc"] is None else int(parsed["crc"], 16),
        compressed_bytes=compressed_bytes(item),
    )


def _described(item: StoredObject) -> FoundObject:
    """Return the description by the user metadata. Raises DataLoss if they are damaged."""
    metadata = item.metadata
    try:
        return FoundObject(
            name=item.name,
            etag=item.etag,
            modified_ms=item.modified_ms,
            store_id=metadata["store"],
            segment_id=int(metadata["segment"]),
            path=base64.urlsafe_b64decode(metadata["name"]).decode(),
            start=int(metadata["start"]),
            end=int(metadata["end"]),
            epoch=int(metadata["epoch"]),
            attempt=metadata["attempt"],
            crc32c=int(metadata["crc32c"], 16),
            compressed_bytes=compressed_bytes(item),
        )
    except (KeyError, ValueError, binascii.Error) as exc:
        raise DataLoss("its metadata is damaged") from exc


def _check(item: FoundObject, length_bytes: int) -> None:
    path = checked_path(item)
    if not 0 <= item.start < item.end <= untrusted.MAX_OFFSET or length_bytes != item.stored.length_bytes:
        raise DataLoss(f"it has {length_bytes} bytes, but its metadata says {item.start} to {item.end}")
    if item.length_bytes > untrusted.MAX_OBJECT_BYTES:  # of a compressed object, only its seek table tells the truth
        raise DataLoss(f"no object has all bytes from {item.start} to {item.end}")
    if item.name not in _names_of(item, path):
        raise DataLoss("its metadata contradicts its name")


def _names_of(item: FoundObject, path: str) -> list[str]:
    """Return the names that such an object can have; older ones are without the CRC32C."""
    segment_id, held, attempt = SegmentId(item.segment_id), ByteRange(item.start, item.end), AttemptId(item.attempt)
    if item.compressed_bytes:
        return [object_name(path, segment_id, held, item.epoch, attempt, item.crc32c, is_compressed=True)]
    return [object_name(path, segment_id, held, item.epoch, attempt, crc) for crc in (item.crc32c, None)]
