"""The store's tree as the kernel sees it: names, inodes and what stat shows of them.

Inodes the kernel knows. Numbers come from the records, so they survive remounts.

Listings of directories: where one goes on is a name, but the kernel keeps a number.

The number is the entry's id: never used twice, so names that come and go while a directory is listed
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


DOTS = (".", "..")
"""Of these two the kernel counts no lookup."""

START = 0
"""The token of the beginning; ids begin above it."""

_AFTER_DOT, _AFTER_DOTS = (1 << 63) - 1, int(ROOT_DIRECTORY)
"""Tokens that are no entry's id: ids never get as far, and the root is in no listing."""

_NAMES_KEPT = 8192
"""For entries deleted behind the listing's back: more than the kernel takes with one request (measured:
about 25 of them in 4 KiB; libfuse takes 1 MiB at most)."""


class DirectoryListing:
    """One open directory."""

    def __init__(self, directory_id: DirectoryId) -> None:
        self._directory_id = directory_id
        self._names: OrderedDict[int, str] = OrderedDict()

    def entries(self, txn: ReadTransaction, token: int) -> Generator[tuple[Entry, int]]:
        """Entries behind the one that `token` was given for, each with its own token; START is the beginning.

        `.` and `..` come first, the others in name order. Raises Fenced for a token whose entry was deleted long ago.
        """
        if token in (START, _AFTER_DOT):
            yield from list(self._dots(txn))[token == _AFTER_DOT :]
        after = "" if token in (START, _AFTER_DOT, _AFTER_DOTS) else self._name_of(txn, token)
        with closing(directories.entries(txn, self._directory_id, after=after)) as found:
            for entry in found:
                yield entry, entry.id

    def given(self, entry: Entry) -> None:
        """The kernel took an entry, with its id as the token to go on behind it."""
        self._names[entry.id] = entry.name
        self._names.move_to_end(entry.id)
        if len(self._names) > _NAMES_KEPT:
            self._names.popitem(last=False)

    def _dots(self, txn: ReadTransaction) -> Iterator[tuple[Entry, int]]:
        """The directory itself and the one above, which of the root is the root; neither of one that was deleted."""
        record = txn.get(DIRECTORIES, tables.u64(self._directory_id))
        if record is not None:
            yield Entry(DOTS[0], EntryKind.DIRECTORY, record.id), _AFTER_DOT
            yield Entry(DOTS[1], EntryKind.DIRECTORY, record.parent_id or ROOT_DIRECTORY), _AFTER_DOTS

    def _name_of(self, txn: ReadTransaction, token: int) -> str:
        name = self._names.get(token)
        if name is not None:
            return name
        found = directories.segment(txn, SegmentId(token)) or txn.get(DIRECTORIES, tables.u64(token))
        if found is None or found.parent_id != self._directory_id:
            raise Fenced("the listing cannot go on: the entry it had come to was deleted")
        return found.name
