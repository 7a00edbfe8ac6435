"""Copying a segment's bytes out, as `tierfs cat` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio

from tierfs import names
from tierfs.checksum import Buffer
from tierfs.errors import InvalidRequest
from tierfs.metadata.records import SegmentRecord
from tierfs.reading.reader import Reader
from tierfs.types import MIB, ReadPriority

Write: TypeAlias = Callable[[Buffer], None]
"""Takes a buffer that is valid until it returns."""


def copy_segment(
    reader: Reader,
    segment: SegmentRecord,
    start: int | None,
    end: int | None,
    priority: ReadPriority | None,
    write: Write,
) -> int:
    """Write bytes [start, end) with `write`; returns how many. Runs its own trio loop.

    Raises InvalidRequest for a range outside the segment, Unavailable or DataLoss for bytes no tier has.
    """
    start = segment.start_offset if start is None else start
    end = segment.length if end is None else end
    if not segment.start_offset <= start <= end <= segment.length:
        raise InvalidRequest(
            f"{names.printable(segment.name)} holds bytes {segment.start_offset} to {segment.length}, "
            f"not {start} to {end}"
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

    # Else Ctrl-C would be raised in whatever runs, and trio loses tasks that are just being started.
    trio.run(copy, restrict_keyboard_interrupt_to_checkpoints=True)
    return end - start
