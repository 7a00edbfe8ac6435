"""What the background writer plans with: views of segments and of the disk in, actions out (design §11).

How full the local disk is, against its watermarks and the floor below which appends are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.chunkstore.local_files import DiskBytes
from tierfs.config import BackgroundSettings
from tierfs.policy import Policy
from tierfs.tiering.candidates import OffloadAction
from tierfs.types import MIB, DirectoryId, ReadPriority, SegmentId


@dataclass(frozen=True, slots=True)
class PendingObject:
    """A cold object to make, and since when its oldest chunk has been complete."""

    action: OffloadAction
    ended_ms: int

    @property
    def bytes(self) -> int:
        """Local bytes that become cold by it."""
        return self.action.range.length_bytes


@dataclass(frozen=True, slots=True)
class ColdCopy:
    """A local chunk that could go: every byte is cold, verified and named by the journal."""

    cold_since_ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """Where a ledger is among those of its managed ledger."""

    managed_ledger: DirectoryId
    ledger_id: int
    bytes_here_alone: int
    """Of an open one as it was seen."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What the policy knows of one segment with local bytes."""

    id: SegmentId
    policy: Policy
    local_bytes: int
    active_since_ms: int = 0
    """When the active chunk began, or an open ledger did; 0 without one."""
    active_bytes: int = 0
    ledger: LedgerPlace | None = None
    """None for a segment of bytes."""
    pending: tuple[PendingObject, ...] = ()
    copies: tuple[ColdCopy, ...] = ()

    @property
    def may_roll(self) -> bool:
        """Whether the active chunk may end before it is full; that of a ledger gains nothing by it."""
        return self.ledger is None

    @property
    def keeps_local(self) -> bool:
        """Whether only a forced evict may take its local bytes."""
        return self.policy.read_priority is ReadPriority.LOCAL_ONLY


@dataclass(frozen=True, slots=True)
class DiskView:
    """The local disk, and where pressure begins."""

    used_bytes: int
    """Of the filesystem, whoever uses it."""
    local_bytes: int
    """Of local chunks."""
    high_used_bytes: int
    high_local_bytes: int
    """Above either of these, cold bytes are evicted whatever their lag."""
    high_unoffloaded_bytes: int
    """Above it, the largest are offloaded first, and active chunks end before their time."""

    @property
    def excess_bytes(self) -> int:
        """Local bytes to be got rid of."""
        return max(0, self.used_bytes - self.high_used_bytes, self.local_bytes - self.high_local_bytes)


@dataclass(frozen=True, slots=True)
class EvictAction:
    """Drop the segment's local chunks that were cold at `cold_before_ms`."""

    segment_id: SegmentId
    cold_before_ms: int


_PERCENT = 100

_HEADROOM_PERCENT = 2
_HEADROOM_BYTES = 16 * MIB
"""Room kept above the floor, the larger of the two (a guess): appends go on while a look and an eviction run."""


def disk_view(disk: DiskBytes, local_bytes: int, floor_bytes: int, settings: BackgroundSettings) -> DiskView:
    """The disk with its limits; without a limit in bytes only percentages and the floor for appends count.

    Where the floor is near, the limits are lowered by as much as is missing: evicting cold bytes comes first, and
    only for the rest are others offloaded early.
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
    """Bytes to be freed so that appends have room; 0 where nothing is kept free."""
    if not floor_bytes:
        return 0
    headroom = max(_HEADROOM_BYTES, disk.size * _HEADROOM_PERCENT // _PERCENT)
    return max(0, floor_bytes + headroom - disk.free)
