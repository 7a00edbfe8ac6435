"""Measure how well and how fast the bytes of a store compress, on a sample that is read through a mount.

One thread compresses and unpacks frames as an offload and a reader do, at the level that is built in.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words.stored_size import NOTHING_STORED, StoredSize
from tierfs.base.words.types import MIB, ByteRange
from tierfs.engine.frames import zstd
from tierfs.engine.frames.frame_map import FRAME_BYTES
from tierfs.engine.metadata import directories
from tierfs.tiering.compressed_source import saves_enough
from tierfs.upkeep.holder.status import totals_of

# Each piece is as `auto` looks at the start of an object.
_PIECE_BYTES = MIB
_MOST_PIECES = 32

# Ranges of files: small ones are opened one by one.
_MOST_PLACES = 4096

# No further piece is read or compressed after this.
_MOST_S = 5.0

_BYTES_PER_MB = 1_000_000

# Lines for a store without bytes.
_GENERATED_LINES = 50_000


@dataclass(frozen=True, slots=True)
class CompressionResults:
    """The measurement of a sample."""

    generated: bool
    """Whether the sample is lines that were made up, as there are no bytes."""
    sample: StoredSize
    by_auto: StoredSize
    """The sample as `compression = auto` would store it, each piece as an object of its own."""
    compress_s: float
    decompress_s: float
    plain_cold_bytes: int
    """Bytes of the store's cold objects that are not compressed."""

    @property
    def compress_mb_per_s(self) -> float:
        """Plain bytes per second of one core."""
        return self.sample.plain_bytes / self.compress_s / _BYTES_PER_MB

    @property
    def decompress_mb_per_s(self) -> float:
        """Plain bytes per second of one core."""
        return self.sample.plain_bytes / self.decompress_s / _BYTES_PER_MB

    @property
    def saved_bytes(self) -> int:
        """Part of the plain cold bytes that `auto` would save, if they are as the sample."""
        return self.plain_cold_bytes * self.by_auto.saved_bytes // max(1, self.by_auto.plain_bytes)


def bench_compression(store: Store, mountpoint: Path, name: str) -> CompressionResults:
    """Measure a sample of the bytes below a name, in proportion to the sizes of segments, for a few seconds."""
    deadline_s = time.monotonic() + _MOST_S
    chosen = random.Random(_MOST_PIECES)  # so that the next run has the same sample
    pieces = _joined(_pieces(store, mountpoint, name, chosen, deadline_s))
    sample, by_auto, compress_s, decompress_s = NOTHING_STORED, NOTHING_STORED, 0.0, 0.0
    deadline_s = time.monotonic() + _MOST_S
    for piece in pieces or [_lines(chosen)]:
        size, compressed_s, unpacked_s = _measure(piece)
        compress_s, decompress_s = compress_s + compressed_s, decompress_s + unpacked_s
        sample = sample.plus(size)
        is_worth = saves_enough(size.plain_bytes, size.stored_bytes)
        by_auto = by_auto.plus(size if is_worth else StoredSize(size.plain_bytes, size.plain_bytes))
        if time.monotonic() > deadline_s:
            break
    with store.metadata.read() as txn:
        totals = totals_of(txn)
    plain_cold_bytes = totals.cold_object_bytes - totals.compressed_stored_bytes
    return CompressionResults(not pieces, sample, by_auto, compress_s, decompress_s, plain_cold_bytes)


def _measure(piece: bytes) -> tuple[StoredSize, float, float]:
    """Compress and unpack a piece; return its size, and the seconds of both."""
    level, view = Policy().compression_level, memoryview(piece)
    data = [view[at : at + FRAME_BYTES] for at in range(0, len(piece), FRAME_BYTES)]
    zstd.compressed(data[0], level)  # what the library takes for its contexts is taken once
    started_s = time.perf_counter()
    frames = [zstd.compressed(each, level) for each in data]
    middle_s = time.perf_counter()
    unpacked = memoryview(bytearray(1) * FRAME_BYTES)
    for each, frame in zip(data, frames, strict=True):
        zstd.decompress_into(memoryview(frame), unpacked[: len(each)])
    return StoredSize(len(piece), sum(map(len, frames))), middle_s - started_s, time.perf_counter() - middle_s


def _joined(pieces: Iterable[bytes]) -> list[bytes]:
    """Return pieces, small ones joined as a pack joins small segments."""
    joined: list[bytes] = []
    for piece in filter(None, pieces):
        if joined and len(joined[-1]) + len(piece) <= _PIECE_BYTES:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _pieces(store: Store, mountpoint: Path, name: str, chosen: random.Random, deadline_s: float) -> Iterator[bytes]:
    """Yield bytes of segments at random places, as often of each as it has bytes."""
    for path, wanted in _places(store, name, chosen):
        if time.monotonic() > deadline_s:
            return
        with suppress(OSError), (mountpoint / path).open("rb", buffering=0) as file:  # removed since, or not readable
            file.seek(wanted.start)
            yield file.read(wanted.length_bytes)


def _places(store: Store, name: str, chosen: random.Random) -> list[tuple[str, ByteRange]]:
    """Return ranges of files; where segments are small, those that follow are part of the piece, as in a pack."""
    places: list[tuple[str, ByteRange]] = []
    with store.metadata.read() as txn:
        total_bytes = sum(segment.range.length_bytes for _, segment in directories.segments_at(txn, name))
        number = min(_MOST_PIECES, -(-total_bytes // _PIECE_BYTES))
        points = sorted(chosen.randrange(total_bytes) for _ in range(number))
        before_bytes = room_bytes = 0
        for path, segment in directories.segments_at(txn, name):
            length_bytes = segment.range.length_bytes
            starts = []
            while points and points[0] < before_bytes + length_bytes:
                starts.append(max(0, min(points.pop(0) - before_bytes, length_bytes - _PIECE_BYTES)))
                room_bytes = _PIECE_BYTES
            for start in starts or ([0] if room_bytes and length_bytes else []):
                taken_bytes = min(room_bytes, length_bytes - start)
                places.append((path, ByteRange(start, start + taken_bytes)))
            if room_bytes:
                room_bytes = max(0, room_bytes - length_bytes)
            before_bytes += length_bytes
            if len(places) >= _MOST_PLACES or not (points or room_bytes):
                break
    return places


def _lines(chosen: random.Random) -> bytes:
    """Return lines of an access log."""
    paths: Sequence[str] = [f"/static/{chosen.randrange(10**6)}.js" for _ in range(500)]
    lines = (
        f"10.{chosen.randrange(16)}.{chosen.randrange(256)}.{chosen.randrange(256)} - - "
        f'[30/Nov/2026:10:{number // 60 % 60:02d}:{number % 60:02d} +0000] "GET {chosen.choice(paths)} HTTP/1.1" '
        f'{chosen.choice((200, 200, 200, 304, 404))} {chosen.randrange(50_000)} "-" "Mozilla/5.0 (X11; Linux x86_64)"'
        for number in range(_GENERATED_LINES)
    )
    return "\n".join(lines).encode()
