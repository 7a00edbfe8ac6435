"""When cold chunks are joined without being asked: a pure function of a segment's record, policy and settings.

A segment that grows: once enough small neighbours make an object at least twice as long as each of them. So a byte
is copied at most once per doubling of the object it lies in, and never again once that is half of object_bytes.
A segment that is sealed and all cold: once more, whatever is small, as nothing will come to it.
"""

from __future__ import annotations

from tierfs.background.consolidation_plan import JoinLimits, RelocateLimits
from tierfs.config import OffloadSettings
from tierfs.metadata.records import SegmentRecord


def largest_small_bytes(object_bytes: int) -> int:
    """Chunks longer than this are large enough: two of them would not fit into one object."""
    return (object_bytes - 1) // 2


def when_asked(object_bytes: int) -> JoinLimits:
    """What a command joins: all that is small."""
    return JoinLimits(object_bytes, largest_small_bytes(object_bytes))


def unasked(segment: SegmentRecord, object_bytes: int, settings: OffloadSettings) -> JoinLimits:
    """What the background writer joins."""
    if segment.sealed and segment.cold.bytes >= segment.length - segment.start_offset:
        return when_asked(object_bytes)
    small = largest_small_bytes(object_bytes)
    return JoinLimits(object_bytes, small, fewest=settings.consolidate_chunks, doubling=True)


def relocation(settings: OffloadSettings) -> RelocateLimits:
    """When an object is copied to leave its dead bytes behind."""
    return RelocateLimits(settings.relocate_dead_percent, settings.relocate_min_bytes, settings.relocate_max_bytes)


def may_have_work(segment: SegmentRecord) -> bool:
    """Whether it is worth loading a segment's chunks; costs nothing."""
    cold = segment.cold
    return cold.count > 1 or (cold.count == 1 and segment.start_offset > cold.first_chunk)
