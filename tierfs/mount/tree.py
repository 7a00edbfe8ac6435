"""The store's tree as the kernel sees it: names, inodes, their attributes, and listings of directories.

Inode numbers are taken from the records, so they survive remounts. A listing continues after a name, but the kernel
keeps a number, the entry's id: ids are never used twice, so names that appear and vanish while a directory is listed
neither repeat nor hide others, and a listing of any size holds a bounded number of names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

import pyfuse3

from tierfs.base.words.errors import Fenced
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId, SegmentStatus
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
            raise Fenced("the name stands for a newer file now")
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
            raise Fenced(f"inode {inode} is no longer known")
        return known

    def _watch(self, inode: int, version: int) -> None:
        """Note by which row the kernel caches a segment's attributes: appends leave no other trace than the row."""
        if version:
            self.inodes.may_grow[inode] = version


# The kernel counts no lookup for these two.
DOTS = (".", "..")

# The token of the start of a listing; ids are above it.
START = 0

# Tokens that are no entry's id: ids never reach the one, and the root is in no listing.
_AFTER_DOT, _AFTER_DOTS = (1 << 63) - 1, int(ROOT_DIRECTORY)

# Names kept for entries that are deleted during the listing: more than the kernel takes with one request (measured:
# about 25 of them in 4 KiB; libfuse takes 1 MiB at most).
_NAMES_KEPT = 8192


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
