"""Compressed objects read by their own seek tables: by recoveries, which have no rows of frames, and to rebuild these.

All bytes may be hostile. A table is believed only as far as the frames prove it: each is
unpacked to exactly the bytes that the table says, and the CRC32C of all plain bytes, which the name of the object has,
is compared. Memory is bounded: by the tables, which take part of the object, by the largest frame, and by a step.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator

from tierfs.base.bytes.checksum import GridBuilder, crc32c, twice
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import read_steps
from tierfs.engine.frames import seek_table, zstd
from tierfs.engine.frames.frame_map import MAX_FRAME_BYTES, FrameMap, is_readable
from tierfs.engine.frames.seek_table import Section
from tierfs.engine.metadata import frame_rows
from tierfs.engine.metadata.checksums import RUN_BYTES
from tierfs.reading.frames import unpack_or_zeros

# The end of an object that is read first: the table of 1 GiB of plain bytes.
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class CompressedObject:
    """A compressed object as its seek tables describe it."""

    stored: StoredObject
    sections: tuple[Section, ...]
    frames: FrameMap
    """All its frames, with the tables between its sections."""

    @property
    def plain_bytes(self) -> int:
        """Number of its plain bytes."""
        return self.frames.plain.end


@dataclass(frozen=True, slots=True)
class CompressedSums:
    """Result of reading a whole compressed object."""

    grid: array[int]
    """The CRC32C of each block of the plain bytes."""
    crc32c: int
    """Of all plain bytes."""
    stored_crc32c: int
    """Of all stored bytes."""
    frames: FrameMap


def opened(storage: ChunkStorage, stored: StoredObject, plain_bytes: int | None = None) -> CompressedObject:
    """Read the seek tables of an object.

    Raises DataLoss if they contradict it or `plain_bytes`, or have frames that no reader takes, and what the storage
    raises.
    """

    def read(start: int, end: int) -> memoryview:
        view = memoryview(bytearray(end - start))
        storage.read_into(stored.name, start, view, if_match=stored.etag)
        return view

    sections, frames = read_tables(read, stored.length_bytes, plain_bytes)
    return CompressedObject(stored, sections, frames)


def read_tables(
    read: Callable[[int, int], memoryview], stored_bytes: int, plain_bytes: int | None = None
) -> tuple[tuple[Section, ...], FrameMap]:
    """Return the sections of an object of so many stored bytes, and all its frames; `read` reads between two offsets.

    Raises DataLoss as `opened`.
    """
    sections = tuple(seek_table.read_sections(read, stored_bytes, _TAIL_BYTES))
    starts, offsets = array("Q", (0,)), array("Q", (0,))
    for size in seek_table.object_frames(sections):
        if not is_readable(size.plain_bytes, size.stored_bytes):
            raise DataLoss(
                f"its frame at {offsets[-1]} has {size.plain_bytes} bytes, {size.stored_bytes} of them stored; at most "
                f"{MAX_FRAME_BYTES} are read"
            )
        starts.append(starts[-1] + size.plain_bytes)
        offsets.append(offsets[-1] + size.stored_bytes)
    frames, end = FrameMap(starts, offsets), starts[-1]
    if plain_bytes is not None and end != plain_bytes:
        raise DataLoss(f"its seek table has frames of {end} bytes, not of {plain_bytes}")
    crowded = frame_rows.crowded_run(frames)
    if crowded is not None:
        raise DataLoss(f"its seek table has too many frames for {RUN_BYTES} bytes from {crowded} on")
    return sections, frames


def plain_steps(storage: ChunkStorage, compressed: CompressedObject, wanted: ByteRange) -> Iterator[memoryview]:
    """Yield plain bytes of an object, which are inside it and not empty, in order; a step is valid until the next.

    Raises DataLoss for a frame that does not unpack, and what the storage raises.
    """
    frames = compressed.frames
    numbers = frames.holding(wanted)
    packed = read_steps(storage, compressed.stored, frames.stored[numbers.start], frames.stored[numbers.stop])
    at = frames.starts[numbers.start]
    for plain in _unpacked(frames, numbers, packed):
        part = ByteRange(at, at + len(plain)).intersect(wanted)
        yield part.of(plain, at)
        at += len(plain)


def summed(
    storage: ChunkStorage, stored: StoredObject, plain_bytes: int | None = None, *, zeros: bool = False
) -> CompressedSums:
    """Read all of an object once and sum up its plain bytes, and its stored ones.

    With `zeros`, frames that do not unpack count as zeros: the CRC32C of all bytes tells. Raises what `opened` and
    `plain_steps` raise.
    """
    compressed, sums, passed = opened(storage, stored, plain_bytes), GridBuilder(), _Passed()
    every = range(len(compressed.frames.stored) - 1)
    for plain in _unpacked(compressed.frames, every, passed.on(read_steps(storage, stored)), zeros=zeros):
        sums.feed(plain)
    return CompressedSums(sums.grid(), sums.crc32c, passed.crc32c, compressed.frames)


def proved(storage: ChunkStorage, stored: StoredObject, plain_bytes: int, expected: int) -> CompressedSums:
    """Read all of an object whose plain bytes were written with the CRC32C `expected`.

    Raises DataLoss if two reads contradict it, and what the storage raises.
    """

    def read() -> CompressedSums:
        sums = summed(storage, stored, plain_bytes)
        if sums.crc32c != expected:
            raise DataLoss(f"the CRC32C of its plain bytes is {sums.crc32c:08x}, they were written with {expected:08x}")
        return sums

    return twice(read)


class _Passed:
    """The CRC32C of stored bytes that pass."""

    def __init__(self) -> None:
        self.crc32c = 0

    def on(self, steps: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield the steps."""
        for step in steps:
            self.crc32c = crc32c(step, self.crc32c)
            yield step


def _unpacked(
    frames: FrameMap, numbers: range, packed: Iterable[memoryview], *, zeros: bool = False
) -> Iterator[memoryview]:
    """Yield the plain bytes of neighbouring frames, one after the other, and exhaust `packed`.

    `packed` has the stored bytes from the first frame on, cut anywhere. With `zeros`, a frame that does not unpack is
    zeros; without, it raises DataLoss.
    """
    starts, stored = frames.starts, frames.stored
    index, at = numbers.start, stored[numbers.start]
    memory, begun = memoryview(bytearray(MAX_FRAME_BYTES)), b""
    for step in packed:
        end = at + len(step)
        while index < numbers.stop and stored[index + 1] <= end:
            if starts[index] < starts[index + 1]:
                rest = step[max(0, stored[index] - at) : stored[index + 1] - at]
                view = memory[: starts[index + 1] - starts[index]]
                frame = memoryview(begun + bytes(rest)) if begun else rest
                if zeros:
                    unpack_or_zeros(frame, view, starts[index])
                else:
                    _unpack(frame, view, stored[index])
                yield view
            index, begun = index + 1, b""
        if index < numbers.stop and starts[index] < starts[index + 1]:  # bytes between frames are not kept
            begun += bytes(step[max(0, stored[index] - at) :])
        at = end


def _unpack(packed: memoryview, view: memoryview, offset: int) -> None:
    try:
        zstd.decompress_into(packed, view)
    except DataLoss as exc:
        raise DataLoss(f"its frame at {offset} does not unpack: {exc}") from exc
