"""Copy a segment's bytes out, as `tierfs cat` does, and follow a growing segment, as `tierfs cat -f` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import trio

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words import names
from tierfs.base.words.errors import Fenced, InvalidRequest, NotFound
from tierfs.base.words.types import MIB, ReadPriority, SegmentId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.segments import streams
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader, run_loop

# Takes a buffer that is valid until it returns.
Write: TypeAlias = Callable[[Buffer], None]

# Interval of checks for a new commit: far below the half second that people accept.
POLL_S = 0.1


def copy_segment(
    reader: StoreReader,
    segment: SegmentRecord,
    start: int | None,
    end: int | None,
    priority: ReadPriority | None,
    write: Write,
) -> int:
    """Write bytes [start, end) with `write`; return how many. Runs its own trio loop.

    Raises InvalidRequest for a range outside the segment, Unavailable or DataLoss for bytes in no tier.
    """
    start = segment.start_offset if start is None else start
    end = segment.length if end is None else end
    if not segment.start_offset <= start <= end <= segment.length:
        raise InvalidRequest(
            f"{names.printable(segment.name)} has bytes {segment.start_offset} to {segment.length}, not {start} to "
            f"{end}"
        )

    async def copy() -> None:
        async with reader:
            handle = reader.open(segment.id, priority=priority)
            try:
                offset = start
                while offset < end:
                    data = await handle.read(offset, min(MIB, end - offset))
                    write(data)
                    offset += len(data)
                    await trio.lowlevel.checkpoint_if_cancelled()
            finally:
                handle.close()
            await reader.settle()

    run_loop(copy)
    return end - start


class Output(Protocol):
    """Destination of the bytes."""

    def write(self, data: Buffer) -> None:
        """Take a buffer that is valid until this returns."""
        ...

    def flush(self) -> None:
        """Pass on all written bytes: no more may follow for a long time."""
        ...

    def check(self) -> None:
        """Raise BrokenPipeError when the receiver is gone; called while there are no bytes."""
        ...


def follow_segment(
    reader: StoreReader, segment: SegmentRecord, start: int | None, priority: ReadPriority | None, output: Output
) -> None:
    """Write the bytes from `start` on, and those appended meanwhile, until the segment is sealed.

    A segment sealed by policy is followed into its successor. Runs its own trio loop. Raises InvalidRequest for
    a start outside the segment, NotFound once it is deleted, and the errors of reads.
    """
    start = segment.start_offset if start is None else start
    if not segment.start_offset <= start <= segment.length:
        raise InvalidRequest(
            f"{names.printable(segment.name)} has bytes {segment.start_offset} to {segment.length}; it cannot be "
            f"followed from {start}"
        )

    async def follow() -> None:
        async with reader:
            following: SegmentId | None = segment.id
            offset = start
            while following is not None:
                handle = reader.open(following, priority=priority)
                try:
                    offset, following = await _follow(reader, handle, offset, output)
                finally:
                    handle.close()

    run_loop(follow)


async def _follow(reader: StoreReader, handle: ReadHandle, offset: int, output: Output) -> tuple[int, SegmentId | None]:
    """Write a segment's bytes until it is sealed; return their end, and the segment that continues it."""
    while True:
        seen = reader.metadata.last_transaction_id()
        offset = await _copy_all(reader, handle, offset, output)
        if handle.segment.sealed:
            return offset, _successor(reader, handle)
        _require_living(reader, handle, offset)  # in the trash it can be read, and never grows
        while reader.metadata.last_transaction_id() == seen:
            output.check()
            await trio.sleep(POLL_S)


def _successor(reader: StoreReader, handle: ReadHandle) -> SegmentId | None:
    with reader.metadata.read() as txn:
        following = streams.successor(txn, handle.segment)
    return None if following is None else following.id


async def _copy_all(reader: StoreReader, handle: ReadHandle, offset: int, output: Output) -> int:
    """Write the bytes from `offset` on; return the offset after them."""
    start = offset
    while data := await _read(reader, handle, offset):
        output.write(data)
        offset += len(data)
        await trio.lowlevel.checkpoint_if_cancelled()
    if offset > start:
        output.flush()
    return offset


async def _read(reader: StoreReader, handle: ReadHandle, offset: int) -> Buffer:
    try:
        return await handle.read(offset, MIB)
    except Fenced:
        _require_living(reader, handle, offset)
        raise


def _require_living(reader: StoreReader, handle: ReadHandle, offset: int) -> None:
    """Raise NotFound if the segment was deleted, or is in the trash."""
    with reader.metadata.read() as txn:
        segment = directories.living_segment(txn, handle.segment.id)
    if segment is None:
        name = names.printable(handle.segment.removal.path or handle.segment.name)
        raise NotFound(f"segment {name} was deleted; its bytes up to {offset} were written")
