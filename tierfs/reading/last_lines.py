"""Find the place where the last lines of a segment start, from its end, as tail(1) does."""

from __future__ import annotations

from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ReadPriority
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader, run_loop

_LINE_FEED = b"\n"


def start_of_last_lines(
    reader: StoreReader, segment: SegmentRecord, lines: int, end: int, priority: ReadPriority | None
) -> int:
    """Return the offset at which the last `lines` lines before the offset `end` start; the segment's start if fewer.

    The bytes after the last line feed are a line too. Runs its own trio loop. Raises the errors of reads.
    """
    offset = segment.start_offset

    async def find() -> None:
        nonlocal offset
        async with reader:
            handle = reader.open(segment.id, priority=priority)
            try:
                offset = await _find(handle, lines, segment.start_offset, end)
            finally:
                handle.close()
            await reader.settle()

    run_loop(find)
    return offset


async def _find(handle: ReadHandle, lines: int, start: int, end: int) -> int:
    """Read backwards, in growing steps: most last lines are short, and a verified read fetches a block anyway."""
    wanted, stop, step_bytes = lines, end, CRC_BLOCK_BYTES
    if wanted == 0:
        return end
    while stop > start:
        begin = max(start, stop - step_bytes)
        block = bytes(await handle.read(begin, stop - begin))
        feeds = block.count(_LINE_FEED)
        at = len(block)
        if stop == end and block.endswith(_LINE_FEED):  # which ends the last line, and starts none
            feeds, at = feeds - 1, at - 1
        if feeds >= wanted:
            for _ in range(wanted):
                at = block.rindex(_LINE_FEED, 0, at)
            return begin + at + 1
        wanted, stop, step_bytes = wanted - feeds, begin, min(MIB, 2 * step_bytes)
    return start
