"""Measure reads through a mount against their limits, in turns: the same bytes without the mount."""

from __future__ import annotations

import json
import os
import queue
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from tierfs.app.setup.typed import is_mount_of, store_of
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.system.places import Mount, MountedPlace
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ByteRange, SegmentKind, Tier
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import chains, directories, tables
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.metadata.stored_shares import share, sizes_of
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.faces.doctor.compression import CompressionResults, bench_compression

# What a mount is compared with; GETs are plain reads of the files where the cold tier is a directory.
RAW = {Tier.COLD: "raw GETs, 8 x 8 MiB", Tier.LOCAL: "chunk files"}

_RANGE_BYTES = 8 * MIB
_IN_PARALLEL = 8
# With these a single reader is as fast as it gets: against Ceph RGW more and larger ones gain nothing.

# As `dd bs=1M`.
_BLOCK_BYTES = MIB

_BYTES_PER_MB = 1_000_000
_STATS = ".tierfs/stats"

# Takes a line that says what is being done.
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Results:
    """The rates of one run, in MB/s, in the order of measuring."""

    path: str
    size_bytes: int
    """Of each repetition."""
    tier: Tier
    """That the mount read."""
    mount: tuple[float, ...]
    raw: tuple[float, ...]
    """Of the same bytes without the mount, of compressed ones as they are stored; empty where that tier has a part of
    them only."""
    compression: CompressionResults

    @property
    def ratio(self) -> float | None:
        """1 if the mount is as fast as its limit, 0.5 if it takes twice as long; of medians."""
        return statistics.median(self.mount) / statistics.median(self.raw) if self.raw else None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of a cold object, or of a chunk file."""

    name: str
    offset: int
    length_bytes: int


def bench_mount(place: MountedPlace, size_bytes: int, repetitions: int, tell: Tell) -> Results:
    """Read the largest sealed segment below a place in a mount; nothing is written.

    Raises NotFound where there is none, InvalidRequest in a bind mount of a part of a mount, which has no statistics.
    """
    mount, name = place.mount, place.name
    if mount.root:
        raise InvalidRequest(f"{mount.mountpoint} is a bind mount of a part of a mount", remedy="use the mount itself")
    with open_store(store_of(mount)) as store:
        is_mount_of(store.path, store.metadata, mount)
        name, segment = _largest(store, name)
        path = mount.mountpoint / name
        chosen = windows(segment.range.length_bytes, size_bytes, repetitions)
        tell(f"reading {chosen[0].length_bytes / MIB:.1f} MiB of {printable(str(path))} in each repetition")
        tier, through, raw = Tier.LOCAL, [], []
        for number, window in enumerate(chosen, 1):
            tell(f"repetition {number} of {repetitions}")
            before = _cold_bytes_read(mount)
            _forget(path)
            for piece in _pieces(store, segment, window, Tier.LOCAL):  # both read the disk, or neither
                _forget(store.files.root / piece.name)
            through.append(_rate(window, _sequential_s(path, window)))
            tier = Tier.COLD if _cold_bytes_read(mount) > before else Tier.LOCAL
            if pieces := _pieces(store, segment, window, tier):
                raw.append(_rate(window, _raw_s(store, pieces, tier)))
        tell("compressing a sample of the bytes")
        compression = bench_compression(store, mount.mountpoint, place.name)
    return Results(str(path), chosen[0].length_bytes, tier, tuple(through), tuple(raw), compression)


def _cold_bytes_read(mount: Mount) -> int:
    """Return the bytes that the mount has read from the cold tier so far, for all readers."""
    read: int = json.loads((mount.mountpoint / _STATS).read_bytes())["reads"]["cold"]["bytes"]
    return read


def windows(length_bytes: int, size_bytes: int, repetitions: int) -> list[ByteRange]:
    """Ranges of the file, one for each repetition, that share no byte, as long as there are enough.

    The last comes first: what a mount has read ahead of one is never part of the next.
    """
    share = length_bytes // repetitions // MIB * MIB or min(length_bytes, MIB)
    size = min(size_bytes, share)
    last = max(0, length_bytes - size) // MIB * MIB
    starts = [max(0, last - number * size) for number in range(repetitions)]
    return [ByteRange(start, start + size) for start in starts]


def _largest(store: Store, name: str) -> tuple[str, SegmentRecord]:
    with store.metadata.read() as txn:
        sealed = [
            (path, segment)
            for path, segment in directories.segments_at(txn, name)
            if segment.sealed and segment.range.length_bytes
        ]
    if not sealed:
        raise NotFound(
            f"no sealed segment with bytes below {printable(name) or '/'}",
            remedy="seal one: tierfs seal SEGMENT",
        )
    return max(sealed, key=lambda entry: entry[1].range.length_bytes)


def _pieces(store: Store, segment: SegmentRecord, window: ByteRange, tier: Tier) -> list[_Piece]:
    """Return the pieces of a window of a file, 8 MiB at most each; none where the tier lacks a byte of it.

    Neither of a ledger, whose objects hold its entries between frames, nor of objects of other programs elsewhere.
    """
    if segment.kind is SegmentKind.LEDGER:
        return []
    start = segment.start_offset + window.start
    wanted = ByteRange(start, start + window.length_bytes)
    pieces: list[_Piece] = []
    found_bytes = 0
    with store.metadata.read() as txn:
        for chunk in chains.overlapping(txn, segment.id, tier, wanted):
            record = chains.object_of(txn, chunk)
            if chunk.lost or (tier is Tier.COLD and record.location_id != store.cold_location_id):
                continue
            held = chunk.range.intersect(wanted)
            found_bytes += held.length_bytes
            for at in range(held.start, held.end, _RANGE_BYTES):
                offset = chunk.object_offset + at - chunk.start_offset
                plain_bytes = min(_RANGE_BYTES, held.end - at)
                pieces.append(_stored_piece(record, ByteRange(offset, offset + plain_bytes)))
    return pieces if found_bytes == window.length_bytes else []


def _stored_piece(record: ObjectRecord, plain: ByteRange) -> _Piece:
    """Return the stored bytes of a plain range; of a compressed object, as many as it has of them on average."""
    size = sizes_of(record)
    return _Piece(record.name, share(size, 0, plain.start), share(size, plain.start, plain.end))


def _raw_s(store: Store, pieces: Sequence[_Piece], tier: Tier) -> float:
    """Return the seconds of reading the pieces without the mount."""
    if tier is Tier.LOCAL:
        taken_s = 0.0
        for piece in pieces:
            path, end = store.files.root / piece.name, piece.offset + piece.length_bytes
            _forget(path)
            taken_s += _sequential_s(path, ByteRange(piece.offset, end))
        return taken_s
    assert store.cold_location_id is not None
    with store.metadata.read() as txn:
        location = txn.must_get(LOCATIONS, tables.u32(store.cold_location_id), "the cold tier")
    with closing(store.place_of(location).open()) as storage:
        _forget_objects(storage, pieces)
        taken_s = _parallel_s(storage, pieces)
        _forget_objects(storage, pieces)
    return taken_s


def _parallel_s(storage: ChunkStorage, pieces: Sequence[_Piece]) -> float:
    """Return the seconds of reading all pieces, eight at a time, into memory that was touched before."""
    buffers: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
    for _ in range(_IN_PARALLEL):
        buffers.put(bytearray(1) * _RANGE_BYTES)

    def read(piece: _Piece) -> None:
        buffer = buffers.get()
        storage.read_into(piece.name, piece.offset, memoryview(buffer)[: piece.length_bytes])
        buffers.put(buffer)

    with Pool(_IN_PARALLEL, "tierfs-bench") as pool:
        started_s = time.perf_counter()
        pool.run(read, pieces)
        return time.perf_counter() - started_s


def _sequential_s(path: Path, wanted: ByteRange) -> float:
    """Return the seconds of reading a range of a file from its start to its end. Raises DataLoss if it is shorter."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        started_s, at = time.perf_counter(), wanted.start
        while at < wanted.end:
            done = os.preadv(file.fileno(), [block[: wanted.end - at]], at)
            if not done:
                raise DataLoss(f"{path} ends at {at}, before {wanted.end}")
            at += done
        return time.perf_counter() - started_s


def _rate(window: ByteRange, taken_s: float) -> float:
    return window.length_bytes / taken_s / _BYTES_PER_MB


def _forget_objects(storage: ChunkStorage, pieces: Sequence[_Piece]) -> None:
    """Drop objects that are files here from the page cache; of a server's caches nobody knows."""
    if isinstance(storage, DirectoryStorage):
        for name in {piece.name for piece in pieces}:
            _forget(storage.root / name)


def _forget(path: Path) -> None:
    """Drop the file's clean pages from the page cache; one that is gone has none."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
