"""What was removed by name and is still to be taken apart: entries of the root under names nobody sees.

A durable queue without a database of its own: the entry is moved to `.tierfs-removed-<id>`, which no listing
shows, no path finds and nobody can create. The journal is told of an ordinary move, so the queue survives a
recovery too.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs import names
from tierfs.metadata import directories, journal, keys
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import DirentRecord, SegmentRecord
from tierfs.metadata.tables import DIRECTORIES, DIRENTS, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentStatus


def queue(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry) -> None:
    """Take an entry's name away and queue it, with everything below it."""
    hidden = f"{names.REMOVED_PREFIX}{entry.id}"
    directories.remove_entry(txn, parent_id, entry.name)
    txn.put(DIRENTS, keys.dirent(ROOT_DIRECTORY, hidden), DirentRecord(kind=entry.kind, id=entry.id))
    if entry.kind is EntryKind.DIRECTORY:
        moved = replace(directories.directory(txn, entry.id), parent_id=ROOT_DIRECTORY, name=hidden)
        txn.put(DIRECTORIES, keys.u64(entry.id), moved)
        journal.directory_changed(txn, moved)
        txn.touch(inode=moved.inode)
        return
    segment: SegmentRecord = txn.must_get(SEGMENTS, keys.u64(entry.id), f"segment {names.printable(entry.name)}")
    bury(txn, replace(segment, parent_id=ROOT_DIRECTORY, name=hidden))


def bury(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Let a segment that goes in several steps end now: no byte of it is read or appended any more."""
    buried = replace(
        segment,
        status=SegmentStatus.DELETED,
        start_offset=segment.length,
        writer_epoch=segment.writer_epoch + 1,
        active=False,
        resumable=False,
        changed_ms=txn.now_ms,
    )
    journal.put_segment(txn, buried)
    txn.touch(inode=buried.inode, segment_id=buried.id)
    return buried


def next_queued(txn: ReadTransaction) -> Entry | None:
    """Something that is queued; None when nothing is."""
    prefix = keys.dirent(ROOT_DIRECTORY, names.REMOVED_PREFIX)
    for key, record in txn.scan(DIRENTS, prefix=prefix):
        return Entry(keys.dirent_name(key), record.kind, record.id)
    return None
