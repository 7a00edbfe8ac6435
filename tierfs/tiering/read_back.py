"""Read a new object back once and check every plain byte against the checksums of its source objects.

The checksums of its pieces are stretches of known length and CRC32C, which end at the ends of the old objects' blocks
or of the pieces. Reading cuts the bytes at these lines and at those of the new object's own grid, so one pass over
the bytes verifies the copy and yields a grid like any other object's. A compressed object is read through its frames,
and the stored bytes are summed up in the same pass, for the seek tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tierfs.base.bytes.checksum import GridBuilder, Stretch, cut_at_lines
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import READ_STEP_BYTES, read_steps
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.reading.frames import FrameShare
from tierfs.reading.scratch import Scratch
from tierfs.tiering.objects import StoredForm


class Mismatch(DataLoss):
    """Bytes do not match their checksum; `offset` is the start of their stretch."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, remedy="run: tierfs check")
        self.offset = offset


class StoredDiffers(DataLoss):
    """The plain bytes of a compressed object are right, and its stored ones are not those that were expected."""


def read_back(
    storage: ChunkStorage,
    stored: StoredObject,
    expected: Sequence[Stretch],
    progress: Callable[[int], None],
    form: StoredForm | None = None,
) -> GridBuilder:
    """Read an object whose plain bytes should consist of `expected`, check all of it, and return their checksums.

    `form` is what it should be stored as, None for its plain bytes. Raises Mismatch with the offset in the plain bytes,
    StoredDiffers, and storage errors.
    """
    check = _Check(stored.name, expected)
    for view in read_steps(storage, stored) if form is None else _plain_steps(storage, stored, form):
        check.feed(view)
        progress(len(view))
    return check.grid


def _plain_steps(storage: ChunkStorage, stored: StoredObject, form: StoredForm) -> Iterator[memoryview]:
    """Yield the plain bytes of a compressed object, each stored byte read once; a step is valid until the next.

    Frames that cannot be unpacked are zeros. Raises StoredDiffers after the last step.
    """
    frames, sums = form.frames, Stretch()
    for numbers in _groups(frames):
        packed = memoryview(bytearray(frames.stored[numbers.stop] - frames.stored[numbers.start]))
        storage.read_into(stored.name, frames.stored[numbers.start], packed, if_match=stored.etag)
        sums = sums.then(Stretch.of(packed))
        held = ByteRange(frames.starts[numbers.start], frames.starts[numbers.stop])
        share, view, done = FrameShare(frames, held, numbers), memoryview(bytearray(held.length_bytes)), 0
        scratch = Scratch(packed, frames.stored[numbers.start])
        while not share.taken:
            done = share.take(scratch, len(packed), view, done)
        yield view
    for view in read_steps(storage, stored, frames.stored[-1]):
        sums = sums.then(Stretch.of(view))
    if sums.crc32c != form.crc32c:
        raise StoredDiffers(f"{printable(stored.name)}: a seek table of it has other bytes than expected")


def _groups(frames: FrameMap) -> Iterator[range]:
    """Yield the numbers of the frames that are read together; seek tables go with those before them."""
    start = 0
    for index in range(1, len(frames.starts)):
        is_last = index == len(frames.starts) - 1
        if is_last or (
            frames.starts[index] < frames.starts[index + 1]
            and max(frames.starts[index + 1] - frames.starts[start], frames.stored[index + 1] - frames.stored[start])
            > READ_STEP_BYTES
        ):
            yield range(start, index)
            start = index


class _Check:
    """Checker of an object's bytes, fed in order; compares them at the end of each expected stretch."""

    def __init__(self, name: str, expected: Sequence[Stretch]) -> None:
        self.grid = GridBuilder()
        self._name = name
        self._expected = iter(expected)
        self._wanted = self._fed = Stretch()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes and check the stretches that end in them. Raises Mismatch."""
        while data:
            if self._fed.length_bytes == self._wanted.length_bytes:
                self._wanted, self._fed = next(self._expected), Stretch()
            part = data[: self._wanted.length_bytes - self._fed.length_bytes]
            for _, cut in cut_at_lines(part, self.grid.length_bytes):
                self.grid.add(cut)
                self._fed = self._fed.then(cut)
            if self._fed.length_bytes == self._wanted.length_bytes and self._fed != self._wanted:
                start = self.grid.length_bytes - self._wanted.length_bytes
                raise Mismatch(f"{printable(self._name)}: the copy differs from its source at {start}", start)
            data = data[len(part) :]
