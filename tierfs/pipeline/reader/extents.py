"""Extents: places of a segment's bytes as plain data, which travels to other processes.

An extent names objects, offsets and checksums; a place names the store's directory and its cold locations. Both
travel with a partition. Extents are pure; the connections to places are made where they arrive, once per process.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.system import forks
from tierfs.base.system.clock import SystemClock
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.store_paths import StorePaths, require_trusted
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, LocationId, ObjectId, PayloadEncoding, ReadPriority, Tier
from tierfs.engine.chunkstore.link import Link
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.located import LocatedStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.engine.metadata import checksums, frame_rows, policies
from tierfs.engine.metadata.layout import PlacedChunk, load
from tierfs.engine.metadata.placements import HeldObject, Placement, held_object, placements
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.in_flight import InFlight
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.grid import Grid, cut_grid
from tierfs.reading.verified import OwnSum, grid_in, own_sum
from tierfs.reading.view import Piece, in_object, resolve

# Chunks of each tier that are loaded at once.
_WINDOW_CHUNKS = 1024


# An extent as numbers and strings: pickled in a tenth of the time.
Flat: TypeAlias = tuple[int, int, tuple[tuple[Any, ...], ...]]
# Frames of one row: their plain bytes, the first one's stored byte, and their lengths, packed.
FlatFrames: TypeAlias = tuple[int, int, int, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Copy:
    """One object that holds the bytes of an extent."""

    object: HeldObject
    range: ByteRange
    """The object's bytes that are the extent's."""
    grid: Grid
    """Checksums of the blocks that these bytes intersect."""
    own: OwnSum | None = None
    """Of the chunk that has these bytes, if known: blocks of a pack are shared with other segments."""
    frames: tuple[FrameMap, ...] = ()
    """Of a compressed object: those with the bytes that proving these reads, by rows of the metadata."""

    def is_right(self, view: memoryview, origin: int) -> bool:
        """Return whether bytes of the object, which `view` has from `origin` on, match by block or by their chunk."""
        if next(self.grid.bad_blocks(view, origin), None) is None:
            return True
        own = self.own
        return own is not None and self.range.contains(own.range) and crc32c(own.range.of(view, origin)) == own.crc32c


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of a segment held by each of `copies`, best first."""

    range: ByteRange
    copies: tuple[Copy, ...]

    @property
    def blocks(self) -> ByteRange:
        """The segment's bytes that proving any copy reads: whole blocks, some of them before and after the range."""
        shifted = [(self.range.start - copy.range.start, copy.grid.range) for copy in self.copies]
        starts = [blocks.start + shift for shift, blocks in shifted]
        ends = [blocks.end + shift for shift, blocks in shifted]
        return ByteRange(min([self.range.start, *starts]), max([self.range.end, *ends]))

    def clipped(self, wanted: ByteRange) -> Extent:
        """Return the part inside `wanted`, which it intersects, with the checksums of no other blocks."""
        if wanted.start <= self.range.start and self.range.end <= wanted.end:
            return self
        kept = self.range.intersect(wanted)
        return Extent(
            kept, tuple(_clipped(copy, kept.start - self.range.start, kept.length_bytes) for copy in self.copies)
        )

    def flat(self) -> Flat:
        """Return the argument of `from_flat`."""
        return self.range.start, self.range.end, tuple(_flat(copy) for copy in self.copies)


def with_blocks(wanted: ByteRange, extents: Sequence[Extent]) -> ByteRange:
    """Return a range of a segment and the bytes around it that its extents, which are in order, are proved with."""
    if not extents:
        return wanted
    return ByteRange(min(wanted.start, extents[0].blocks.start), max(wanted.end, extents[-1].blocks.end))


def from_flat(flat: Flat) -> Extent:
    """Return the extent of `flat`, without the object fields that only its store needs."""
    start, end, copies = flat
    return Extent(ByteRange(start, end), tuple(_copy_from_flat(*copy) for copy in copies))


def extents_of(
    txn: ReadTransaction, segment: SegmentRecord, wanted: ByteRange, priority: ReadPriority
) -> Iterator[Extent]:
    """Yield the extents of `wanted`, which lies inside the segment, in order and without gaps.

    Raises Unavailable for bytes that the priority's tiers do not have, DataLoss for bytes that are lost.
    """
    at = wanted.start
    tiers = [tier for tier in priority.tiers if segment.tier_state(tier).count]
    if len(tiers) == 1:
        for extent in _of_one_tier(txn, segment, wanted, tiers[0]):
            yield extent
            at = extent.range.end
    while at < wanted.end:
        layout = load(txn, segment, at, _WINDOW_CHUNKS)
        window = ByteRange(at, min(layout.window.end, wanted.end))
        for piece in resolve(layout, window, priority.tiers):
            if piece.lost:
                raise _missing(segment, piece, priority)
            yield Extent(piece.range, tuple(_copy(txn, piece.range, placed) for placed in _good(piece)))
        at = window.end


def _of_one_tier(txn: ReadTransaction, segment: SegmentRecord, wanted: ByteRange, tier: Tier) -> Iterator[Extent]:
    """Yield extents as far as the chain has no gap: without a choice between tiers, in half the time."""
    at = wanted.start
    for placement in placements(txn, segment.id, tier, at):
        if at >= wanted.end or placement.range.start > at:
            return
        yield Extent(placement.range, (_placed_copy(placement),)).clipped(wanted)
        at = placement.range.end


def _placed_copy(placement: Placement) -> Copy:
    grid = cut_grid(placement.grid_start, placement.crcs, placement.held, placement.object.length)
    own = None if placement.crc32c is None else OwnSum(placement.held, placement.crc32c)
    return Copy(placement.object, placement.held, grid, own, placement.frames)


def clip(extents: Sequence[Extent], wanted: ByteRange) -> tuple[Extent, ...]:
    """Return the extents inside `wanted`, of a sequence in order."""
    touched = [extent for extent in extents if extent.range.start < wanted.end and extent.range.end > wanted.start]
    for index in {0, len(touched) - 1} if touched else ():  # only the first and the last one may be cut
        touched[index] = touched[index].clipped(wanted)
    return tuple(touched)


def _good(piece: Piece) -> Iterator[PlacedChunk]:
    return (placed for placed in piece.candidates if not placed.chunk.lost)


def _copy(txn: ReadTransaction, wanted: ByteRange, placed: PlacedChunk) -> Copy:
    held, own = in_object(wanted, placed), own_sum(placed)
    grid = grid_in(txn, placed.object, held)
    frames = frame_rows.frames_holding(txn, placed.object, read_for(grid, own))
    return Copy(held_object(placed.object), held, grid, own, frames)


def read_for(grid: Grid, own: OwnSum | None) -> ByteRange:
    """Return the bytes of an object that may be read to prove the blocks of a grid, or the chunk that has them."""
    if own is None or own.range.contains(grid.range):
        return grid.range
    return ByteRange(min(grid.range.start, own.range.start), max(grid.range.end, own.range.end))


def _flat(copy: Copy) -> tuple[Any, ...]:
    held, stored = copy.range, copy.object
    of_object = (stored.id, int(stored.tier), *stored[2:6])
    encoded = (int(stored.encoding), *stored[7:], [_flat_frames(each) for each in copy.frames])
    own: tuple[int, ...] = ()
    if copy.own is not None:
        crc, proved = copy.own.crc32c, copy.own.range
        own = (crc,) if proved == held else (crc, proved.start, proved.end)
    return (held.start, held.end, copy.grid.range.start, copy.grid.range.end, copy.grid.crcs, own) + (
        of_object + (encoded if stored.encoding else ())
    )


def _flat_frames(frames: FrameMap) -> FlatFrames:
    starts, stored = frames.starts, frames.stored
    lengths = checksums.pack(frame_rows.lengths_of(frames, ends=True))
    return starts[0], starts[-1], stored[0], lengths, checksums.pack(frames.stored_lengths)


def _frames_from_flat(start: int, end: int, stored_start: int, lengths: bytes, stored_lengths: bytes) -> FrameMap:
    return FrameMap.of(start, stored_start, checksums.unpack(lengths), checksums.unpack(stored_lengths), end)


def _copy_from_flat(
    start: int,
    end: int,
    grid_start: int,
    grid_end: int,
    crcs: bytes,
    own: tuple[int, ...],
    object_id: int,
    tier: int,
    location_id: int,
    name: str,
    length: int,
    etag: str,
    encoding: int = 0,
    stored_length: int = 0,
    segment_id: int = 0,
    payload_start: int = 0,
    frames: Iterable[FlatFrames] = (),
) -> Copy:
    of_object = (ObjectId(object_id), Tier(tier), LocationId(location_id), name, length, etag)
    stored = HeldObject(*of_object, PayloadEncoding(encoding), stored_length, segment_id, payload_start)
    held = ByteRange(start, end)
    known = OwnSum(ByteRange(*own[1:]) if own[1:] else held, own[0]) if own else None
    placed = tuple(_frames_from_flat(*each) for each in frames)
    return Copy(stored, held, Grid(ByteRange(grid_start, grid_end), crcs), known, placed)


def _clipped(copy: Copy, skip_bytes: int, length_bytes: int) -> Copy:
    start = copy.range.start + skip_bytes
    held = ByteRange(start, start + length_bytes)
    grid = copy.grid.cut(held)
    read = checksums.whole_blocks(read_for(grid, copy.own), copy.object.length)
    parts = ((frames, frames.plain.intersect(read)) for frames in copy.frames)
    return Copy(copy.object, held, grid, copy.own, tuple(frames.cut(part) for frames, part in parts if part))


def _missing(segment: SegmentRecord, piece: Piece, priority: ReadPriority) -> Unavailable | DataLoss:
    where = f"segment {printable(segment.name)}: bytes {piece.range.start} to {piece.range.end}"
    if not piece.candidates and len(priority.tiers) == 1:
        tier = priority.tiers[0].name.lower()
        return Unavailable(
            f"{where} are not in the {tier} tier, but the read priority is {priority}",
            remedy="set another readPriority",
        )
    return DataLoss(f"{where} are lost", remedy="run: tierfs check")


@dataclass(frozen=True, slots=True)
class ScannedStore:
    """A store as readers on other machines know it. It has no credentials: botocore's chain finds them."""

    path: str
    store_id: str
    locations: tuple[LocationRecord, ...]
    settings: ColdSettings

    def location(self, location_id: LocationId) -> LocationRecord:
        """Return the location with this id. Raises NotFound."""
        for record in self.locations:
            if record.id == location_id:
                return record
        raise NotFound(f"unknown location {location_id}")


class PlaceConnections:
    """The connections of one process to places. Thread-safe; a child of fork makes its own."""

    def __init__(self) -> None:
        self.forget()
        forks.register(self)

    def forget(self) -> None:
        """In a child of fork, forget what is open: it belongs to the parent."""
        self._lock = threading.Lock()
        self._storages: dict[tuple[ScannedStore, LocationId], ChunkStorage] = {}
        self._in_flight: dict[ScannedStore, InFlight] = {}
        self._files: dict[tuple[str, int, int], ChunkFiles] = {}
        self._metadata: dict[tuple[str, str], MetadataStore | None] = {}
        self._etags: dict[ScannedStore, Etags] = {}

    def etags(self, place: ScannedStore) -> Etags:
        """Return the current etags of a place's objects, as this process met them."""
        with self._lock:
            return self._etags.setdefault(place, Etags(None))

    def adopt_etags(self, place: ScannedStore) -> None:
        """Write etags that proved right into the store's records, if this host sees the store; a task's last step.

        Else each process meets them anew, at the price of one refused request for each object.
        """
        etags = self.etags(place)
        if etags.wait_for_adoption:
            etags.adopt(metadata=self.metadata(place))

    def storage(self, place: ScannedStore, location_id: LocationId) -> ChunkStorage:
        """Return the storage of a location, which connects with its first call. Raises NotFound.

        Where this host sees the store, a failure at a place that the store has left is repeated at the present one.
        """
        with self._lock:
            storage = self._storages.get((place, location_id))
            if storage is None:
                location = place.location(location_id)
                storage = _TaskStorage(self, place, location)
                self._storages[place, location_id] = storage
                self._in_flight_of(place).follow(location_id, storage)
            return storage

    def in_flight(self, place: ScannedStore) -> InFlight:
        """Return the number and size of requests, which follow the links to the place's storages from task to task."""
        with self._lock:
            return self._in_flight_of(place)

    def _in_flight_of(self, place: ScannedStore) -> InFlight:
        return self._in_flight.setdefault(place, InFlight())

    def files(self, place: ScannedStore) -> ChunkFiles:
        """Return the store's local chunk files. Raises NotFound or PermissionDenied if this host does not see them."""
        with self._lock:
            chunks = StorePaths(Path(place.path)).chunks
            with map_os_errors(str(chunks)):
                status = os.stat(chunks)
            key = (place.path, status.st_dev, status.st_ino)  # a store may be removed and made anew
            files = self._files.get(key)
            if files is None:
                require_trusted(Path(place.path))
                files = self._files[key] = ChunkFiles(chunks)
            return files

    def metadata(self, place: ScannedStore) -> MetadataStore | None:
        """Return the store's metadata, or None if this host does not see the store."""
        with self._lock:
            key = (place.path, place.store_id)
            known = self._metadata.get(key)
            if key not in self._metadata or (known is not None and not known.is_present):
                known = self._metadata[key] = _metadata_of(place)
            return known

    def sees(self, place: ScannedStore) -> bool:
        """Return whether this process can read the store's directory, and trusts its owner."""
        try:
            require_trusted(Path(place.path))
        except PermissionDenied:
            return False
        return os.access(StorePaths(Path(place.path)).chunks, os.R_OK | os.X_OK)


class _TaskStorage(LocatedStorage):
    """The storage of a location for tasks that read one place."""

    def __init__(self, connections: PlaceConnections, place: ScannedStore, location: LocationRecord) -> None:
        # Without looks between failures: most executors never open the metadata, and tasks are short.
        super().__init__(None, _TaskConnector(place), location, look_s=math.inf)
        self._connections = connections
        self._of = place

    def _newest(self) -> LocationRecord:
        """Return the store's record where this host sees the store, else the one that came with the task."""
        metadata = self._connections.metadata(self._of)
        if metadata is None:
            return self._of.location(self.location_id)
        with metadata.read() as txn:
            return policies.location(txn, self.location_id)


@dataclass(frozen=True, slots=True)
class _TaskConnector:
    """Connects for tasks that read one place; see Connector."""

    _store: ScannedStore

    def connected(self, location: LocationRecord) -> ChunkStorage:
        """Connect. Raises PermissionDenied, InvalidRequest and Unavailable."""
        place = self._place(location)
        place.require_allowed()
        return place.shared(NullMetrics())

    def link(self, location: LocationRecord) -> Link:
        """Return a new link."""
        return self._place(location).new_link()

    def _place(self, location: LocationRecord) -> Place:
        return Place(location, Path(self._store.path), self._store.settings)


def _metadata_of(place: ScannedStore) -> MetadataStore | None:
    try:
        require_trusted(Path(place.path))
        with map_os_errors(place.path):  # an executor of another user sees the directory, and nothing in it
            metadata = MetadataStore(StorePaths(Path(place.path)).metadata, SystemClock())
    except (NotFound, PermissionDenied):
        return None
    return metadata if metadata.store_id == place.store_id else None
