"""The store's tree as the kernel sees it: names, inodes, their attributes, and listings of directories.

Inode numbers are taken from the records, so they survive remounts. A listing continues after a name, but the kernel
keeps a number, the entry's id: ids are never used twice, so names that appear and vanish while a directory is listed
neither repeat nor hide others, and a listing of any size holds a bounded number of names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyfuse3

from tierfs.errors import Fenced, NotFound
from tierfs.fuse import attributes
from tierfs.fuse.options import MountOptions
from tierfs.metadata import directories, tables
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.metadata.tables import DIRECTORIES
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ROOT_DIRECTORY, ROOT_INODE, DirectoryId, EntryKind, SegmentId, Tier


@dataclass(slots=True)
class InodeEntry:
    """The entry of an inode number, with the lookups the kernel has not forgotten."""

    kind: EntryKind
    id: int
    lookups: int = 0
    size_shown: int = 0
    """Largest size or end of a read given to the kernel: it never sees less."""
    sealed_open_seen: bool = False
    """The segment was opened here since it was sealed, so cached pages are of the sealed one."""
    start_offset: int = 0
    """The segment's start when the inode was opened: offset 0 of the file."""
    sealed_end: int | None = None
    """The segment's end when it was opened sealed. Pages of that end are cached: the inode never grows."""
    open_handles: int = 0
    served_from: Tier | None = None
    """Tier that served the newest read."""

    def opened(self, segment: SegmentRecord) -> None:
        """Count one more handle of the inode."""
        self.open_handles += 1
        self.start_offset = segment.start_offset
        if segment.sealed and self.sealed_end is None:
            self.sealed_end = segment.length

    def size_in(self, segment: SegmentRecord) -> int:
        """Return the file's size by a newer record of its segment, which may have another inode by now."""
        return (self.sealed_end or segment.length) - self.start_offset


class Inodes:
    """Map from inode numbers to entries, for as long as the kernel remembers them."""

    def __init__(self) -> None:
        self._known: dict[int, InodeEntry] = {ROOT_INODE: InodeEntry(EntryKind.DIRECTORY, ROOT_DIRECTORY, lookups=1)}

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

    def forget(self, inode: int, lookups: int) -> None:
        """Subtract lookups dropped by the kernel; never raises."""
        entry = self._known.get(inode)
        if entry is None or inode == ROOT_INODE:
            return
        entry.lookups -= lookups
        if entry.lookups <= 0:
            del self._known[inode]

    def numbers(self) -> list[int]:
        """Return all inodes the kernel knows."""
        return list(self._known)


class Tree:
    """Finds entries and remembers the sizes and lookups given to the kernel."""

    def __init__(self, inodes: Inodes, options: MountOptions, timeout_s: float) -> None:
        """Keep the options; the kernel caches attributes that do not change by themselves for `timeout_s`."""
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

    def attributes(self, txn: ReadTransaction, entry: Entry) -> pyfuse3.EntryAttributes:
        """Return the attributes of an entry. Raises Fenced when it was deleted."""
        timeout_s = self._timeout_s
        if entry.kind is EntryKind.DIRECTORY:
            return attributes.of_directory(self._directory(txn, entry.id), self._options, timeout_s)
        segment = self.segment(txn, entry.id)
        entry_attributes = attributes.of_segment(segment, self._options, timeout_s)
        known = self.inodes.get(segment.inode)
        if known is not None:
            known.size_shown = entry_attributes.st_size = max(known.size_shown, entry_attributes.st_size)
        return entry_attributes

    def attributes_of_inode(self, txn: ReadTransaction, inode: int) -> pyfuse3.EntryAttributes:
        """Return the attributes of an inode the kernel knows. Raises Fenced when it is gone."""
        known = self.require(inode)
        newest = self.attributes(txn, Entry("", known.kind, known.id))
        if newest.st_ino == inode:
            return newest
        return self._old_view(inode, known, self.segment(txn, known.id), newest)

    def _old_view(
        self, inode: int, known: InodeEntry, segment: SegmentRecord, newest: pyfuse3.EntryAttributes
    ) -> pyfuse3.EntryAttributes:
        """Return the attributes of the name's earlier file: its open handles keep it, with the segment's growth."""
        if not known.open_handles:
            raise Fenced("the name stands for a newer file now")
        newest.st_ino = inode
        newest.st_size = known.size_shown = max(known.size_shown, known.size_in(segment))
        newest.attr_timeout = 0
        return newest

    def count_lookup(self, entry: Entry, answer: pyfuse3.EntryAttributes) -> pyfuse3.EntryAttributes:
        """Count the lookup that the kernel counts for this answer, and return the answer."""
        known = self.inodes.remember(answer.st_ino, entry.kind, entry.id)
        known.size_shown = max(known.size_shown, answer.st_size)
        return answer

    def segment(self, txn: ReadTransaction, segment_id: int) -> SegmentRecord:
        """Return a segment's record. Raises Fenced when it was deleted."""
        segment = directories.segment(txn, SegmentId(segment_id))
        if segment is None:
            raise Fenced("the segment was deleted")
        return segment

    def _directory(self, txn: ReadTransaction, directory_id: int) -> DirectoryRecord:
        try:
            return directories.directory(txn, directory_id)
        except NotFound as exc:
            raise Fenced("the directory was deleted") from exc

    def require(self, inode: int) -> InodeEntry:
        """Return the entry of an inode. Raises Fenced when the kernel should have forgotten it."""
        known = self.inodes.get(inode)
        if known is None:
            raise Fenced(f"inode {inode} is no longer known")
        return known


DOTS = (".", "..")
"""The kernel counts no lookup for these two."""

START = 0
"""The token of the start of a listing; ids are above it."""

_AFTER_DOT, _AFTER_DOTS = (1 << 63) - 1, int(ROOT_DIRECTORY)
"""Tokens that are no entry's id: ids never reach the one, and the root is in no listing."""

_NAMES_KEPT = 8192
"""Names kept for entries that are deleted during the listing: more than the kernel takes with one request (measured:
about 25 of them in 4 KiB; libfuse takes 1 MiB at most)."""


class DirectoryListing:
    """One open directory."""

    def __init__(self, directory_id: DirectoryId) -> None:
        self._directory_id = directory_id
        self._names: OrderedDict[int, str] = OrderedDict()

    def entries(self, txn: ReadTransaction, token: int) -> Generator[tuple[Entry, int]]:
        """Yield the entries after the one of `token`, each with its own token; START is the beginning.

        `.` and `..` are first, the others in name order. Raises Fenced for a token whose entry was deleted long ago.
        """
        if token in (START, _AFTER_DOT):
            yield from list(self._dots(txn))[token == _AFTER_DOT :]
        after = "" if token in (START, _AFTER_DOT, _AFTER_DOTS) else self._name_of(txn, token)
        with closing(directories.entries(txn, self._directory_id, after=after)) as following:
            for entry in following:
                yield entry, entry.id

    def given(self, entry: Entry) -> None:
        """Note that the kernel took an entry, with its id as the token to continue after it."""
        self._names[entry.id] = entry.name
        self._names.move_to_end(entry.id)
        if len(self._names) > _NAMES_KEPT:
            self._names.popitem(last=False)

    def _dots(self, txn: ReadTransaction) -> Iterator[tuple[Entry, int]]:
        """Yield the directory and its parent, which for the root is the root; neither for a deleted one."""
        record = txn.get(DIRECTORIES, tables.u64(self._directory_id))
        if record is not None:
            yield Entry(DOTS[0], EntryKind.DIRECTORY, record.id), _AFTER_DOT
            yield Entry(DOTS[1], EntryKind.DIRECTORY, record.parent_id or ROOT_DIRECTORY), _AFTER_DOTS

    def _name_of(self, txn: ReadTransaction, token: int) -> str:
        name = self._names.get(token)
        if name is not None:
            return name
        record = directories.segment(txn, SegmentId(token)) or txn.get(DIRECTORIES, tables.u64(token))
        if record is None or record.parent_id != self._directory_id:
            raise Fenced("the listing cannot continue: the entry it had reached was deleted")
        return record.name
