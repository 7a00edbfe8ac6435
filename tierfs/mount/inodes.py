"""The inodes that the kernel knows, and what it was told of each: sizes, and what its cached pages hold.

Sizes and pages of a file that grows. The kernel fills the last page of a file with zeros, and a size that grows makes
them readable: a reader that takes the page and is held up before it looks at the size sees NULs. Hence a file that
somebody reads through the page cache keeps the size up to which its pages are complete, until growth.py has renewed
them.
"""

from __future__ import annotations

from mmap import PAGESIZE

import trio

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ROOT_DIRECTORY, ROOT_INODE, EntryKind, SegmentStatus, Tier
from tierfs.engine.metadata import records_pb2 as pb


@dataclass(slots=True)
class InodeEntry:
    """The entry of an inode number, with the lookups the kernel has not forgotten."""

    kind: EntryKind
    id: int
    lookups: int = 0
    size_shown: int = 0
    """Largest size given to the kernel, or end of a read past its pages: it never sees less."""
    start_offset: int = 0
    """The segment's start when the inode was opened: offset 0 of the file."""
    sealed_end: int | None = None
    """The segment's end when it was opened sealed. The inode never grows beyond it."""
    open_handles: int = 0
    paged_handles: int = 0
    """Those of them that read through the kernel's pages."""
    pages_end: int = -1
    """Size up to which the kernel's pages have every byte; -1 when there are none."""
    pages_kept: bool = False
    """Whether a new handle may use the pages: no older ones are left."""
    growing: trio.Event | None = None
    """Set when the growth in progress is over."""
    served_from: Tier | None = None
    """Tier that served the newest read."""
    tail: bytes = b""
    """The bytes of the page in which the file ends, as the kernel has it, up to `tail_end`.

    A head that is dropped within this page takes bytes that its readers have behind them; but the kernel reads the page
    as a whole when the file grows.
    """
    tail_end: int = 0
    """Offset in the segment."""
    head: bytes = b""
    """The bytes before a dropped head in its page, up to `head_end`, for readers that others have left behind."""
    head_end: int = 0

    def note_tail(self, start: int, data: Buffer) -> None:
        """Keep the file's last page out of bytes of the segment that were read up to its end."""
        end = start + len(data)
        in_page = (end - self.start_offset) % PAGESIZE
        if end >= self.tail_end and in_page <= len(data):
            self.tail, self.tail_end = bytes(data[len(data) - in_page :]), end

    def tail_between(self, start: int, end: int) -> bytes | None:
        """Return bytes of the segment out of the last page; None where it has not all of them."""
        first = self.tail_end - len(self.tail)
        return self.tail[start - first : end - first] if first <= start < end <= self.tail_end else None

    def before_head(self, start: int, head: int) -> bytes | None:
        """Return the bytes from `start` to a dropped head, which begins at `head`; None where not all are kept."""
        if self.head_end == head and head - start <= len(self.head):
            return self.head[len(self.head) - (head - start) :]
        gone = self.tail_between(start, head)
        if gone is not None:
            self.head, self.head_end = gone, head
        return gone

    def opened(self, segment: pb.SegmentRecord) -> int:
        """Count one more handle of the inode; return the file's size."""
        self.open_handles += 1
        self.start_offset = segment.start_offset
        if segment.status != SegmentStatus.OPEN and self.sealed_end is None:
            self.sealed_end = segment.length
        return self.size_in(segment)

    def size_in(self, segment: pb.SegmentRecord) -> int:
        """Return the file's size by a newer row of its segment, which may have another inode by now."""
        return (segment.length if self.sealed_end is None else self.sealed_end) - self.start_offset

    def opened_paged(self, size_bytes: int) -> bool:
        """Count a handle that reads through the kernel's pages; return whether it may use those that are there.

        Without that the kernel drops them before the handle's first read. Pages that lack bytes are dropped by the
        first open after growth: nobody else has the file open then, as growth is waited for otherwise.
        """
        if self.paged_handles == 0 and self.pages_end < size_bytes:
            self.pages_end = self.size_shown = size_bytes
            self.pages_kept = False
        self.paged_handles += 1
        return self.pages_kept


class Inodes:
    """Map from inode numbers to entries, for as long as the kernel remembers them."""

    def __init__(self) -> None:
        self._known: dict[int, InodeEntry] = {ROOT_INODE: InodeEntry(EntryKind.DIRECTORY, ROOT_DIRECTORY, lookups=1)}
        self.may_grow: dict[int, int] = {}
        """Hashes of the rows by which the kernel caches attributes of open segments, by inode."""
        self.behind: set[int] = set()
        """Inodes whose size was given to the kernel as their pages have it, not as it is."""

    def remember(self, inode: int, kind: EntryKind, entry_id: int) -> InodeEntry:
        """Count one more lookup of an inode by the kernel."""
        entry = self._known.get(inode)
        if entry is None:
            entry = self._known[inode] = InodeEntry(kind, entry_id)
        entry.lookups += 1
        return entry

    def get(self, inode: int) -> InodeEntry | None:
        """Return the entry of the inode; None when the kernel has forgotten it."""
        return self._known.get(inode)

    def show(self, inode: int, known: InodeEntry, size_bytes: int) -> int:
        """Return the size to give to the kernel, for a file that has so many bytes."""
        if not known.paged_handles:
            known.size_shown = max(known.size_shown, size_bytes)
        elif known.pages_end != size_bytes:
            self.behind.add(inode)
        return known.size_shown

    def forget(self, inode: int, lookups: int) -> None:
        """Subtract lookups dropped by the kernel; never raises."""
        entry = self._known.get(inode)
        if entry is None or inode == ROOT_INODE:
            return
        entry.lookups -= lookups
        if entry.lookups <= 0:
            del self._known[inode]
            self.may_grow.pop(inode, None)

    def numbers(self) -> list[int]:
        """Return all inodes the kernel knows."""
        return list(self._known)
