"""Creating a segment, with the directories on its way."""

from __future__ import annotations

from dataclasses import replace

from tierfs import names
from tierfs.errors import InvalidRequest
from tierfs.metadata import directories, journal
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import IngestedFile, SegmentRecord
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import DirectoryId, EntryKind, Inode, SegmentId, SegmentKind


def create(txn: WriteTransaction, name: str, kind: SegmentKind = SegmentKind.BYTES) -> SegmentRecord:
    """Make an empty open segment. Raises AlreadyExists, NotDirectory or InvalidRequest."""
    parent_id, last = make_parent(txn, name)
    segment_id = SegmentId(txn.allocate_id())
    return add(txn, SegmentRecord(id=segment_id, parent_id=parent_id, name=last, inode=new_inode(txn), kind=kind))


def make_parent(txn: WriteTransaction, name: str) -> tuple[DirectoryId, str]:
    """The directory of a new segment, made with all on its way, and the name in it.

    Raises NotDirectory or InvalidRequest.
    """
    parts = names.split(name)
    if not parts:
        raise InvalidRequest("a segment needs a name")
    return _make_directories(txn, name, parts[0], parts[:-1]), parts[-1]


def make_directory(txn: WriteTransaction, name: str) -> None:
    """Make a directory with all on its way; one that is there is left as it is.

    Raises NotDirectory or InvalidRequest.
    """
    parts = names.split(name)
    if parts:
        _make_directories(txn, name, parts[0], parts)


def _make_directories(txn: WriteTransaction, name: str, first: str, parts: tuple[str, ...]) -> DirectoryId:
    if first.startswith(names.REMOVED_PREFIX):
        raise InvalidRequest(f"{names.printable(name)}: names that begin with {names.REMOVED_PREFIX} are reserved")
    directory_id, made = directories.make_directories(txn, parts)
    for record in made:
        journal.directory_changed(txn, record)
    return directory_id


def add(txn: WriteTransaction, new: SegmentRecord) -> SegmentRecord:
    """Put a new segment into its directory, and tell the journal. Raises AlreadyExists."""
    return add_dated(txn, replace(new, created_ms=txn.now_ms, modified_ms=txn.now_ms, changed_ms=txn.now_ms))


def add_dated(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """The same for a segment whose times are set."""
    directories.add_entry(txn, segment.parent_id, Entry(segment.name, EntryKind.SEGMENT, segment.id))
    journal.put_segment(txn, segment)
    return segment


def note_file(txn: WriteTransaction, name: str, file: IngestedFile) -> None:
    """Keep the mode and the time of the file that a segment is a copy of, unless it has become longer since."""
    segment = directories.segment_by_name(txn, name)
    if segment.length == file.length and segment.file != file:
        txn.touch(inode=segment.inode)
        journal.put_segment(txn, replace(segment, file=file, changed_ms=txn.now_ms))


def new_inode(txn: WriteTransaction) -> Inode:
    """An inode number that no file ever had."""
    return Inode(txn.allocate_id())
