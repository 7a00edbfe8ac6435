"""Inputs and outputs of the background writer's plan: views of segments and of the disk, and actions (design §11).

Pressure is the fill of the local disk against its watermarks, and against the floor below which appends are refused.
"""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.options.policy import Policy
from tierfs.base.words.types import MIB, DirectoryId, ReadPriority, SegmentId
from tierfs.engine.chunkstore.local_files import DiskBytes
from tierfs.tiering.candidates import OffloadAction

_PERCENT = 100

_HEADROOM_PERCENT = 2
# Room kept above the floor, the larger of the two (a guess): appends continue during a refresh and an eviction.
_HEADROOM_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class PendingObject:
    """A cold object to make, and the time at which its oldest chunk was complete."""

    action: OffloadAction
    ended_ms: int

    @property
    def bytes(self) -> int:
        """Local bytes that it makes cold."""
        return self.action.range.length_bytes


@dataclass(frozen=True, slots=True)
class ColdCopy:
    """An evictable local chunk: every byte is cold, verified and named by the journal."""

    cold_since_ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A segment's place among those that `offload_above_bytes` counts as one: a stream's, or a managed ledger's."""

    stream: tuple[DirectoryId, str]
    """The directory, and the stream's name in it; no name for a managed ledger, which is the directory itself."""
    number: int
    """Ledger id, or first offset in the stream: the smallest is the oldest."""
    bytes_here_alone: int
    """Bytes on the local disk alone: those of complete chunks, or of a whole ledger; of an open one as last
    measured."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """The planner's view of one segment with local bytes."""

    id: SegmentId
    policy: Policy
    local_bytes: int
    active_since_ms: int = 0
    """Begin of the active chunk or of an open ledger; 0 without one."""
    active_bytes: int = 0
    """Bytes here alone in the active chunk: not what the cold tier has acknowledged."""
    active_cold_bytes: int = 0
    """Bytes of an active chunk that is wholly cold: it could be evicted if it ended."""
    ledger: bool = False
    place: StreamPlace | None = None
    """None if none of its bytes is here alone."""
    pending: tuple[PendingObject, ...] = ()
    copies: tuple[ColdCopy, ...] = ()
    removed_ms: int = 0
    """Time of its removal, while it is in the trash: it is not offloaded, and only pressure takes local copies."""

    @property
    def may_roll(self) -> bool:
        """Whether the active chunk may end before it is full; ending a ledger's would gain nothing."""
        return not self.ledger

    @property
    def keeps_local(self) -> bool:
        """Whether only a forced evict may drop its local bytes."""
        return self.policy.read_priority is ReadPriority.LOCAL_ONLY


@dataclass(frozen=True, slots=True)
class DiskView:
    """The local disk and the limits above which it is under pressure."""

    used_bytes: int
    """Used bytes of the filesystem, by all its users."""
    local_bytes: int
    """Bytes of local chunks."""
    high_used_bytes: int
    high_local_bytes: int
    """Above this or `high_used_bytes`, cold bytes are evicted regardless of their lag."""
    high_unoffloaded_bytes: int
    """Above it, the largest objects are offloaded first, and active chunks end early."""

    @property
    def excess_bytes(self) -> int:
        """Local bytes to be evicted."""
        return max(0, self.used_bytes - self.high_used_bytes, self.local_bytes - self.high_local_bytes)


@dataclass(frozen=True, slots=True)
class EvictAction:
    """Drop the segment's local chunks that were cold at `cold_before_ms`, the deletion lag."""

    segment_id: SegmentId
    cold_before_ms: int
    end: int | None = None
    """Only chunks that end there or before."""


def disk_view(disk: DiskBytes, local_bytes: int, floor_bytes: int, settings: BackgroundSettings) -> DiskView:
    """Return the disk with its limits; without a limit in bytes only percentages and the append floor count.

    Near the floor the limits are lowered by the missing bytes: cold bytes are evicted first, and only for the rest
    are others offloaded early.
    """
    missing = missing_bytes(disk, floor_bytes)
    high_local = settings.high_watermark_bytes or disk.size
    high_used = disk.size * settings.high_watermark_percent // _PERCENT
    high_unoffloaded = min(disk.size, high_local) * settings.unoffloaded_watermark_percent // _PERCENT
    if missing:
        high_used = min(high_used, max(0, disk.used - missing))
        high_unoffloaded = min(high_unoffloaded, max(0, local_bytes - missing))
    return DiskView(
        used_bytes=disk.used,
        local_bytes=local_bytes,
        high_used_bytes=high_used,
        high_local_bytes=high_local,
        high_unoffloaded_bytes=high_unoffloaded,
    )


def missing_bytes(disk: DiskBytes, floor_bytes: int) -> int:
    """Return the bytes to be freed to make room for appends; 0 without a floor."""
    if not floor_bytes:
        return 0
    headroom = max(_HEADROOM_BYTES, disk.size * _HEADROOM_PERCENT // _PERCENT)
    return max(0, floor_bytes + headroom - disk.free)
