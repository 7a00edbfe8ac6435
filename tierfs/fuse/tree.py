"""The store's tree as the kernel sees it: names, inodes and what stat shows of them."""

from __future__ import annotations

import pyfuse3

from tierfs.errors import Fenced, NotFound
from tierfs.fuse import attributes
from tierfs.fuse.inodes import Inodes, Known
from tierfs.fuse.options import MountOptions
from tierfs.metadata import directories
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId


class Tree:
    """Finds entries and remembers what the kernel was told of them."""

    def __init__(self, inodes: Inodes, options: MountOptions, timeout_s: float) -> None:
        """`timeout_s`: how long the kernel trusts what does not change by itself."""
        self.inodes = inodes
        self._options = options
        self._timeout_s = timeout_s

    def find(self, txn: ReadTransaction, parent: Known, name: bytes) -> Entry | None:
        """The entry of a name; `.` and `..` come from NFS servers only."""
        if name == b".":
            return Entry("", parent.kind, parent.id)
        if name == b"..":
            above = directories.directory(txn, parent.id).parent_id or ROOT_DIRECTORY
            return Entry("", EntryKind.DIRECTORY, above)
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return None  # no segment has a name that is not UTF-8
        return (
            None if directories.is_removed(parent.id, text) else directories.lookup(txn, DirectoryId(parent.id), text)
        )

    def attributes(self, txn: ReadTransaction, entry: Entry) -> pyfuse3.EntryAttributes:
        """What stat shows of an entry. Raises Fenced when it was deleted."""
        timeout_s = self._timeout_s
        if entry.kind is EntryKind.DIRECTORY:
            return attributes.of_directory(self._directory(txn, entry.id), self._options, timeout_s)
        segment = self.segment(txn, entry.id)
        found = attributes.of_segment(segment, self._options, timeout_s)
        known = self.inodes.get(segment.inode)
        if known is not None:
            known.size_shown = found.st_size = max(known.size_shown, found.st_size)
        return found

    def attributes_of_inode(self, txn: ReadTransaction, inode: int) -> pyfuse3.EntryAttributes:
        """What stat shows of an inode the kernel knows."""
        known = self.require(inode)
        found = self.attributes(txn, Entry("", known.kind, known.id))
        if found.st_ino == inode:
            return found
        return self._old_view(inode, known, self.segment(txn, known.id), found)

    def _old_view(
        self, inode: int, known: Known, segment: SegmentRecord, newest: pyfuse3.EntryAttributes
    ) -> pyfuse3.EntryAttributes:
        """The file that the name stood for before: who has it open keeps it, with what the segment still gets."""
        if not known.open_handles:
            raise Fenced("the name stands for a newer file now")
        newest.st_ino = inode
        newest.st_size = known.size_shown = max(known.size_shown, known.size_in(segment))
        newest.attr_timeout = 0
        return newest

    def told(self, entry: Entry, answer: pyfuse3.EntryAttributes) -> pyfuse3.EntryAttributes:
        """The kernel learns of an entry: it counts a lookup."""
        known = self.inodes.remember(answer.st_ino, entry.kind, entry.id)
        known.size_shown = max(known.size_shown, answer.st_size)
        return answer

    def segment(self, txn: ReadTransaction, segment_id: int) -> SegmentRecord:
        """A segment's record. Raises Fenced when it was deleted."""
        segment = directories.segment(txn, SegmentId(segment_id))
        if segment is None:
            raise Fenced("the segment was deleted")
        return segment

    def _directory(self, txn: ReadTransaction, directory_id: int) -> DirectoryRecord:
        try:
            return directories.directory(txn, directory_id)
        except NotFound as exc:
            raise Fenced("the directory was deleted") from exc

    def require(self, inode: int) -> Known:
        """What an inode stands for. Raises Fenced when the kernel should not know it any more."""
        known = self.inodes.get(inode)
        if known is None:
            raise Fenced(f"inode {inode} is not known any more")
        return known
