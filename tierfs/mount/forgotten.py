"""Entries of inodes that the kernel has forgotten, for file handles: those of an NFS server, and open_by_handle_at.

A handle has the number of the inode alone, and its client keeps it for ever: over a dropped cache and a remount. A row
is found by the number of most inodes, which follows the row's id. For the others, those of files that were ingested,
unsealed or lost their head, the rows are read once, in a thread, and 16 bytes are kept of each. Numbers are never used
twice: one that no row has is that of a file that is gone, until the store has given out greater ones.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import trio

from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.names import is_removed
from tierfs.base.words.types import ROOT_DIRECTORY, ROOT_INODE, EntryKind, SegmentStatus
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.records import DirectoryRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import DIRECTORIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction


class ForgottenInodes:
    """Finds entries by their inodes. On the trio loop."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._one_at_a_time = trio.Lock()
        self._inodes, self._ids = array("Q"), array("Q")
        """Of rows whose inode does not follow their id, in the order of the inodes."""
        self._next_id = self._seen = 0
        """The number that was to be given out next when the rows were read, and the transaction that read them."""

    async def find(self, inode: int) -> Entry | None:
        """Return the entry that has an inode now; None if it was removed, or its name stands for a newer file."""
        if inode == ROOT_INODE:
            return Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY)
        entry = self._entry(inode - 1, inode) if inode else None
        if entry is not None:
            return entry
        async with self._one_at_a_time:
            if not self._is_known(inode):
                await trio.to_thread.run_sync(self._read_rows)
        at = bisect_left(self._inodes, inode)
        is_there = at < len(self._inodes) and self._inodes[at] == inode
        return self._entry(self._ids[at], inode) if is_there else None

    def _is_known(self, inode: int) -> bool:
        """Return whether the row of an inode, if there is one, was there when the rows were read."""
        with self._metadata.read() as txn:
            # The numbers of a replica are its owner's.
            return inode < self._next_id and (not txn.store.replica or txn.id == self._seen)

    def _entry(self, row_id: int, inode: int) -> Entry | None:
        with self._metadata.read() as txn:
            for kind, record in (
                (EntryKind.SEGMENT, txn.get(SEGMENTS, tables.u64(row_id))),
                (EntryKind.DIRECTORY, txn.get(DIRECTORIES, tables.u64(row_id))),
            ):
                if record is not None and record.inode == inode and not _is_gone(txn, record):
                    return Entry("", kind, row_id)
        return None

    def _read_rows(self) -> None:
        """Read the inodes of all rows, in a thread."""
        with self._metadata.read() as txn:
            next_id, seen = txn.store.next_id, txn.id
            inodes, ids = array("Q"), array("Q")
            for inode, row_id in _irregular(txn):
                inodes.append(inode)
                ids.append(row_id)
        order = sorted(range(len(inodes)), key=inodes.__getitem__)  # a third of the memory of pairs
        self._inodes, self._ids = array("Q", map(inodes.__getitem__, order)), array("Q", map(ids.__getitem__, order))
        self._next_id, self._seen = next_id, seen


def _irregular(txn: ReadTransaction) -> Iterator[tuple[int, int]]:
    """Yield inode and id of each row whose inode is not the number after its id. Damaged rows have none."""
    for table in (SEGMENTS, DIRECTORIES):
        for key, data in txn.scan_raw(table.name):
            message = table.codec.parse_or_none(data)
            row_id = tables.read_u64(key)
            if message is not None and message.inode != row_id + 1:
                yield message.inode, row_id


def _is_gone(txn: ReadTransaction, record: SegmentRecord | DirectoryRecord) -> bool:
    """Return whether a row is that of a removed entry, or of one below: in the trash, or not taken apart yet."""
    if isinstance(record, SegmentRecord) and record.status is SegmentStatus.DELETED:
        return True
    try:
        return is_removed(directories.top(txn, record).name)
    except (DataLoss, NotFound):
        return True
