"""Inodes the kernel knows. Numbers come from the records, so they survive remounts."""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.metadata.records import SegmentRecord
from tierfs.types import ROOT_DIRECTORY, ROOT_INODE, EntryKind, Tier


@dataclass(slots=True)
class Known:
    """What an inode number stands for, and how many lookups the kernel has not forgotten."""

    kind: EntryKind
    id: int
    lookups: int = 0
    size_shown: int = 0
    """Largest size or end of a read the kernel was given: it never sees less."""
    sealed_open_seen: bool = False
    """The segment was opened here since it was sealed, so pages in the cache are of the sealed one."""
    start_offset: int = 0
    """Where the segment began when the inode was opened: offset 0 of the file."""
    sealed_end: int | None = None
    """Where the segment ended when it was opened sealed. Pages of that end are cached: the inode never grows."""
    open_handles: int = 0
    served_from: Tier | None = None
    """Tier that served the newest read."""

    def opened(self, segment: SegmentRecord) -> None:
        """One more handle reads the inode."""
        self.open_handles += 1
        self.start_offset = segment.start_offset
        if segment.sealed and self.sealed_end is None:
            self.sealed_end = segment.length

    def size_in(self, segment: SegmentRecord) -> int:
        """Size of the file by a newer record of its segment, which may have another inode by now."""
        return (self.sealed_end or segment.length) - self.start_offset


class Inodes:
    """Map from inode numbers to entries, for as long as the kernel remembers them."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {ROOT_INODE: Known(EntryKind.DIRECTORY, ROOT_DIRECTORY, lookups=1)}

    def remember(self, inode: int, kind: EntryKind, entry_id: int) -> Known:
        """The kernel is told of an inode once more."""
        known = self._known.get(inode)
        if known is None:
            known = self._known[inode] = Known(kind, entry_id)
        known.lookups += 1
        return known

    def get(self, inode: int) -> Known | None:
        """What the inode stands for; None when the kernel has forgotten it."""
        return self._known.get(inode)

    def forget(self, inode: int, lookups: int) -> None:
        """The kernel drops lookups; never raises."""
        known = self._known.get(inode)
        if known is None or inode == ROOT_INODE:
            return
        known.lookups -= lookups
        if known.lookups <= 0:
            del self._known[inode]

    def numbers(self) -> list[int]:
        """All inodes the kernel knows."""
        return list(self._known)
