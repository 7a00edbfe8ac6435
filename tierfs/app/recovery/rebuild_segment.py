"""Make a segment from its objects: records, names and the changes for the journal of a fresh store.

Choose the objects that make up a segment: a cover without overlaps, the newest owner's and the largest first.

A higher epoch wins, because after a recovery offsets may have been written again; of one epoch the larger object wins,
because it was made of the smaller ones. An object that overlaps a better one is left out whole: its other bytes may
belong to a history that was abandoned. `choose` is pure. `verified_cover` reads every chosen object once, compares it
with the CRC32C it was written with, and yields a new checksum grid.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import grid_of, proved_sums
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, NotFound, TierfsError
from tierfs.base.words.types import AttemptId, ByteRange, DirectoryId, EntryKind, Inode, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.link import streams_to
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import read_steps
from tierfs.engine.metadata import changes, checksums, directories, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.packs import format as packs

# Far more than the id counter reaches, and it can still count on from there.
_MAX_SEGMENT_ID = 2**62

# Objects read at once far from the server: 128 MiB of memory.
_MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of a store, as its name, metadata, index or manifest describes it."""

    name: str
    etag: str
    modified_ms: int
    store_id: str
    """Empty if the object does not name it."""
    segment_id: int
    path: str
    start: int
    end: int
    epoch: int
    attempt: str
    crc32c: int | None
    """CRC32C of the segment's bytes; None if neither name nor metadata contain it: a copy of an old object without its
    metadata."""
    pack_bytes: int = 0
    """Size of the pack that holds the bytes among others; 0 if they are the whole object."""
    object_offset: int = 0
    appended: int = 0
    """Number of the pack among those that appends waited for, the later ones higher; 0 for any other object."""

    @property
    def length_bytes(self) -> int:
        """Number of the segment's bytes in it."""
        return self.end - self.start

    @property
    def object_bytes(self) -> int:
        """Size of the object."""
        return self.pack_bytes or self.length_bytes

    @property
    def label(self) -> str:
        """Its name in reports of objects that were not linked."""
        return f"{self.name}, {self.path} from {self.start}" if self.pack_bytes else self.name


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An object that was not linked, and why."""

    name: str
    why: str


def checked_path(item: FoundObject) -> str:
    """Return the name of the segment. Raises DataLoss for an impossible segment or owner."""
    if not (0 < item.segment_id <= _MAX_SEGMENT_ID and 0 < item.epoch <= MAX_EPOCH):
        raise DataLoss("it names an impossible segment or owner")
    try:
        path = names.join(names.split(item.path))
    except TierfsError as exc:
        raise DataLoss(f"it names an impossible segment: {exc}") from exc
    if path != item.path or not path or names.is_removed(path):
        raise DataLoss("it names an impossible segment")
    return path


@dataclass(frozen=True, slots=True)
class ObjectCover:
    """A choice of objects, in offset order, and the omitted ones."""

    chosen: tuple[FoundObject, ...]
    left: tuple[FoundObject, ...]

    @property
    def gaps(self) -> tuple[ByteRange, ...]:
        """Ranges between the chosen objects that none of them holds."""
        held = [ByteRange(chosen.start, chosen.end) for chosen in self.chosen]
        return tuple(ranges.gaps(ByteRange(held[0].start, held[-1].end), held)) if held else ()


def choose(objects: Sequence[FoundObject]) -> ObjectCover:
    """Return the best cover of a segment."""

    def rank(item: FoundObject) -> tuple[object, ...]:
        # The bytes of an append that failed with its pack in the bucket never were in the segment, and the next append
        # began at the same offset: any object is better than such a pack, and of two of them the later one.
        doubt = item.appended > 0, -item.appended
        return (-item.epoch, *doubt, -item.length_bytes, item.start, item.attempt)

    placed: list[tuple[int, int, FoundObject]] = []
    omitted: list[FoundObject] = []
    for item in sorted(objects, key=rank):
        at = bisect_left(placed, item.start, key=lambda row: row[0])
        fits_before = at == 0 or placed[at - 1][1] <= item.start
        fits_after = at == len(placed) or item.end <= placed[at][0]
        if fits_before and fits_after:
            insort(placed, (item.start, item.end, item), key=lambda row: row[0])
        else:
            omitted.append(item)
    return ObjectCover(tuple(row[2] for row in placed), tuple(omitted))


# CRC32C of each 128 KiB of the object, by label.
Grids = dict[str, tuple[int, ...]]


class Packs:
    """Checksums of packs: each pack is read once, though many segments have bytes in it. Thread-safe."""

    def __init__(self) -> None:
        self._grids: dict[str, tuple[bytes, bool]] = {}
        """Block CRCs, four bytes each, and whether the whole pack is undamaged."""
        self._lock = threading.Lock()

    def read_grid(self, storage: ChunkStorage, entry: FoundObject) -> tuple[int, ...]:
        """Return the grid of the pack that holds `entry`. Raises DataLoss when these bytes are damaged.

        A pack with one bad byte has many good segments: then the entry's own CRC decides.
        """
        with self._lock:
            if entry.name not in self._grids:
                named, read = packs.parse_name(entry.name), _reading(storage, entry, 0, entry.object_bytes)
                sums = grid_of(read())
                if named is not None and sums.crc32c != named.crc32c:
                    sums = grid_of(read())  # a transfer damages bytes once
                sound = named is not None and sums.crc32c == named.crc32c
                self._grids[entry.name] = (checksums.pack(sums.grid()), sound)
            packed, sound = self._grids[entry.name]
        if not sound:
            assert entry.crc32c is not None, "the index of a pack names that of each entry"
            proved_sums(_reading(storage, entry, entry.object_offset, entry.length_bytes), entry.crc32c)
        return struct.unpack(f">{len(packed) // 4}I", packed)


def _reading(
    storage: ChunkStorage, item: FoundObject, offset: int, length_bytes: int
) -> Callable[[], Iterator[memoryview]]:
    """Return a function that begins to read a part of an object, as it is now."""
    stored = StoredObject(item.name, item.object_bytes, item.etag)
    return partial(read_steps, storage, stored, offset, offset + length_bytes)


def verified_cover(
    storage: ChunkStorage, objects: Sequence[FoundObject], packs: Packs, advance: Meter
) -> tuple[ObjectCover, Grids, list[LeftOver]]:
    """Return the best cover of undamaged objects, their grids, and the damaged objects.

    A damaged object makes room for the smaller ones that it was made of, which are then read. Raises storage errors,
    except for damage.
    """
    grids: Grids = {}
    damaged: list[LeftOver] = []
    candidates = list(objects)
    while True:
        cover = choose(candidates)
        unread = [chosen for chosen in cover.chosen if chosen.label not in grids]
        if not unread:
            return cover, grids, damaged
        broken = _read_all(storage, unread, packs, grids, advance)
        damaged += broken
        labels = {leftover.name for leftover in broken}
        candidates = [candidate for candidate in candidates if candidate.label not in labels]


def _read_all(
    storage: ChunkStorage, objects: Iterable[FoundObject], packs: Packs, grids: Grids, advance: Meter
) -> list[LeftOver]:
    """Read objects, as many at once as fill the link; return the damaged ones."""

    def read(item: FoundObject) -> tuple[FoundObject, tuple[int, ...] | LeftOver]:
        try:
            return item, packs.read_grid(storage, item) if item.pack_bytes else read_grid(storage, item)
        except (DataLoss, NotFound) as exc:
            return item, LeftOver(item.label, f"it is damaged: {exc}")

    broken: list[LeftOver] = []
    at_once = streams_to(storage, _MOST_AT_ONCE)
    with Pool(at_once, "tierfs-recover") as pool:
        for item, grid in pool.in_order(read, objects, ahead=at_once):
            if isinstance(grid, LeftOver):
                broken.append(grid)
            else:
                grids[item.label] = grid
            advance(item.length_bytes, item.path)
    return broken


def read_grid(storage: ChunkStorage, item: FoundObject) -> tuple[int, ...]:
    """Return the grid of an object. Raises DataLoss when its bytes contradict its CRC32C, if that is known."""
    read = _reading(storage, item, 0, item.object_bytes)
    sums = grid_of(read()) if item.crc32c is None else proved_sums(read, item.crc32c)
    return tuple(sums.grid())


# Ids of the packs that have a record already, by name.
PackIds = dict[str, ObjectId]


def make_segment(
    txn: WriteTransaction,
    segment_id: SegmentId,
    path: str,
    cover: ObjectCover,
    grids: Grids,
    packs: PackIds,
    *,
    suffix: bool,
) -> tuple[str, SegmentRecord]:
    """Write a segment with its cover and its gaps; return its final name and its record.

    Packs that are linked for the first time are added to `packs`. `suffix`: its name belongs to another segment. Raises
    InvalidRequest if no name can be made, before anything is linked.

    The segment is open, as its seal is unknown, and begins with its first object.
    """
    parts = names.split(path)
    if suffix:
        parts = (*parts[:-1], _suffixed(parts[-1], segment_id))
    parent_id, name, path = _place(txn, parts, segment_id)
    modified_ms = max(chosen.modified_ms for chosen in cover.chosen)
    segment = SegmentRecord(
        id=segment_id,
        parent_id=parent_id,
        name=name,
        inode=Inode(txn.allocate_id()),
        start_offset=cover.chosen[0].start,
        length=cover.chosen[-1].end,
        writer_epoch=1,
        created_ms=modified_ms,
        modified_ms=modified_ms,
        changed_ms=txn.now_ms,
        recovered_ms=txn.now_ms,
    )
    directories.add_entry(txn, parent_id, Entry(name, EntryKind.SEGMENT, segment_id))
    changes.segment_changed(txn, segment)
    for chosen in cover.chosen:
        segment = _link(txn, segment, chosen, grids[chosen.label], packs)
    segment = Editor(txn, segment).fill_gaps(cover.gaps).segment
    txn.put(SEGMENTS, tables.u64(segment_id), segment)
    return path, segment


def _link(
    txn: WriteTransaction, segment: SegmentRecord, chosen: FoundObject, grid: tuple[int, ...], packs: PackIds
) -> SegmentRecord:
    pack_id = packs.get(chosen.name)
    record = None if pack_id is None else txn.get(OBJECTS, tables.u64(pack_id))
    if record is None:
        record = _new_object(txn, chosen, grid)
    if chosen.pack_bytes:
        packs[chosen.name] = record.id
        record = replace(record, packed=record.packed + 1, linked_sequence=txn.store.next_outbox)
    chunk = ChunkRecord(
        start_offset=chosen.start,
        length=chosen.length_bytes,
        object_id=record.id,
        object_offset=chosen.object_offset,
    )
    if chosen.pack_bytes:
        chunk = replace(chunk, crc32c=chosen.crc32c, crc_offset=chosen.object_offset, crc_length=chosen.length_bytes)
    changed = Editor(txn, segment).insert(Tier.COLD, chunk, record).segment
    changes.cold_linked(txn, segment.id, (chunk,), () if pack_id is not None else (replace(record, references=1),))
    return changed


def _new_object(txn: WriteTransaction, chosen: FoundObject, grid: tuple[int, ...]) -> ObjectRecord:
    named = packs.parse_name(chosen.name) if chosen.pack_bytes else None
    record = ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=Tier.COLD,
        location_id=txn.store.cold_location_id,
        name=chosen.name,
        length=chosen.object_bytes,
        etag=chosen.etag,
        crc32c=chosen.crc32c if named is None else named.crc32c,
        store_epoch=chosen.epoch,
        attempt=AttemptId(chosen.attempt),
        created_ms=chosen.modified_ms,
        linked_sequence=txn.store.next_outbox,
    )
    checksums.put_grid(txn, record.id, grid)
    return record


def _place(txn: WriteTransaction, parts: tuple[str, ...], segment_id: SegmentId) -> tuple[DirectoryId, str, str]:
    """Make the directory of a segment; return it with the free name. A taken component gets a suffix."""
    while True:
        taken = _taken(txn, parts)
        if taken is None:
            break
        parts = names.split(names.join((*parts[:taken], _suffixed(parts[taken], segment_id), *parts[taken + 1 :])))
    return directories.make_directories(txn, parts[:-1]), parts[-1], names.join(parts)


def _taken(txn: WriteTransaction, parts: tuple[str, ...]) -> int | None:
    """Return the index of the path's component that is taken already, or None."""
    for depth in range(1, len(parts)):
        entry = directories.find(txn, names.join(parts[:depth]))
        if entry is None:
            return None
        if entry.kind is EntryKind.SEGMENT:
            return depth - 1
    return None if directories.find(txn, names.join(parts)) is None else len(parts) - 1


def _suffixed(part: str, segment_id: SegmentId) -> str:
    """Return the component followed by the segment's id, cut to the longest allowed name."""
    suffix = f".{segment_id}"
    kept = part.encode()[: names.MAX_COMPONENT_BYTES - len(suffix)].decode(errors="ignore")
    return kept + suffix
