"""Find the first byte in which two segments differ."""

from __future__ import annotations

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.types import MIB, ReadPriority
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.reading.reader import StoreReader, run_loop


def first_difference(
    reader: StoreReader, left: SegmentRecord, right: SegmentRecord, priority: ReadPriority | None
) -> int | None:
    """Return how many bytes both have in common at their starts; None if they have the same bytes.

    Where one has only the first bytes of the other, that is its length. Both are read side by side, in blocks. Runs its
    own trio loop. Raises the errors of reads.
    """
    both_bytes = min(left.range.length_bytes, right.range.length_bytes)
    equal_bytes = 0

    async def compare() -> None:
        nonlocal equal_bytes
        async with reader:
            handles = [reader.open(segment.id, priority=priority) for segment in (left, right)]
            try:
                while equal_bytes < both_bytes:
                    size = min(MIB, both_bytes - equal_bytes)
                    mine = bytes(await handles[0].read(left.start_offset + equal_bytes, size))  # valid until the next
                    theirs = await handles[1].read(right.start_offset + equal_bytes, size)
                    same_bytes = _common(mine, theirs)
                    equal_bytes += same_bytes
                    if same_bytes < size:
                        break
            finally:
                for handle in handles:
                    handle.close()
            await reader.settle()

    run_loop(compare)
    whole = equal_bytes == left.range.length_bytes == right.range.length_bytes
    return None if whole else equal_bytes


def _common(left: Buffer, right: Buffer) -> int:
    """Return how many bytes two buffers have in common at their starts."""
    mine, theirs = memoryview(left), memoryview(right)
    low, high = 0, min(len(mine), len(theirs))
    if mine[:high] == theirs[:high]:
        return high
    while high - low > 1:  # bytes up to `low` are equal, those up to `high` are not
        middle = (low + high) // 2
        low, high = (middle, high) if mine[low:middle] == theirs[low:middle] else (low, middle)
    return low
