"""The store's tree as the kernel sees it: names, inodes and their attributes.

Inode numbers are taken from the records, so they survive remounts.
"""

from __future__ import annotations

from typing import NamedTuple

import pyfuse3

from tierfs.base.words.errors import Fenced
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentStatus
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.tables import DIRECTORIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.mount import attributes
from tierfs.mount.inodes import InodeEntry, Inodes
from tierfs.mount.options import MountOptions


class Shown(NamedTuple):
    """The attributes of an entry, and a hash of the row they are made from: 0 if the kernel is told of its changes."""

    attributes: pyfuse3.EntryAttributes
    version: int


class Tree:
    """Finds entries and remembers the sizes and lookups given to the kernel."""

    def __init__(self, inodes: Inodes, options: MountOptions, timeout_s: float) -> None:
        """Keep the options; the kernel caches attributes for `timeout_s` and is told of changes before."""
        self.inodes = inodes
        self._options = options
        self._timeout_s = timeout_s

    def find(self, txn: ReadTransaction, parent: InodeEntry, name: bytes) -> Entry | None:
        """Return the entry of a name, or None; only NFS servers look up `.` and `..`."""
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

    def attributes(self, txn: ReadTransaction, entry: Entry) -> Shown:
        """Return the attributes of an entry. Raises Fenced when it was deleted."""
        if entry.kind is EntryKind.DIRECTORY:
            directory = txn.message(DIRECTORIES, tables.u64(entry.id))
            if directory is None:
                raise Fenced("the directory was deleted")
            return Shown(attributes.of_directory(directory, self._options, self._timeout_s), 0)
        segment, version = self.segment(txn, entry.id)
        answer = attributes.of_segment(segment, self._options, self._timeout_s)
        known = self.inodes.get(segment.inode)
        if known is not None:
            answer.st_size = self.inodes.show(segment.inode, known, answer.st_size)
        return Shown(answer, version)

    def attributes_of_inode(self, txn: ReadTransaction, inode: int) -> pyfuse3.EntryAttributes:
        """Return the attributes of an inode the kernel knows. Raises Fenced when it is gone."""
        known = self.require(inode)
        answer, version = self.attributes(txn, Entry("", known.kind, known.id))
        if answer.st_ino == inode:
            self._watch(inode, version)
            return answer
        # The name stands for another file: open handles keep this one, with the segment's growth.
        if not known.open_handles:
            raise Fenced("the name now refers to a newer file")
        answer.st_ino = inode
        answer.st_size = self.inodes.show(inode, known, known.size_in(self.segment(txn, known.id)[0]))
        answer.attr_timeout = 0
        return answer

    def count_lookup(self, entry: Entry, shown: Shown) -> pyfuse3.EntryAttributes:
        """Count the lookup that the kernel counts for this answer, and return its attributes."""
        answer, version = shown
        known = self.inodes.remember(answer.st_ino, entry.kind, entry.id)
        known.size_shown = max(known.size_shown, answer.st_size)
        self._watch(answer.st_ino, version)
        return answer

    def segment(self, txn: ReadTransaction, segment_id: int) -> tuple[pb.SegmentRecord, int]:
        """Return a segment's row, and its version while it may grow. Raises Fenced when it was deleted."""
        row = txn.get_raw(SEGMENTS.name, tables.u64(segment_id))
        if row is None:
            raise Fenced("the segment was deleted")
        segment: pb.SegmentRecord = SEGMENTS.codec.message(row)
        return segment, hash(row) if segment.status == SegmentStatus.OPEN else 0

    def require(self, inode: int) -> InodeEntry:
        """Return the entry of an inode. Raises Fenced when the kernel should have forgotten it."""
        known = self.inodes.get(inode)
        if known is None:
            raise Fenced(f"inode {inode} is unknown")
        return known

    def _watch(self, inode: int, version: int) -> None:
        """Note by which row the kernel caches a segment's attributes: appends leave no other trace than the row."""
        if version:
            self.inodes.may_grow[inode] = version
