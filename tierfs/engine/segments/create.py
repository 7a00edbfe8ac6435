"""Create a segment with its missing parent directories."""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, InvalidRequest
from tierfs.base.words.types import (
    DirectoryId,
    EntryKind,
    Inode,
    SegmentId,
    SegmentKind,
)
from tierfs.engine.metadata import changes, directories
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction


def create(
    txn: WriteTransaction, name: str, kind: SegmentKind = SegmentKind.BYTES, reserved: SegmentId | None = None
) -> SegmentRecord:
    """Create an empty open segment, with the id that was reserved for it, if one was.

    Raises AlreadyExists, NotDirectory or InvalidRequest.
    """
    parent_id, last = make_parent(txn, name)
    segment_id = SegmentId(txn.allocate_id()) if reserved is None else reserved
    new = SegmentRecord(id=segment_id, parent_id=parent_id, name=last, inode=Inode(txn.allocate_id()), kind=kind)
    return add(txn, new if reserved is None else replace(new, commit_id=txn.allocate_id()))


def make_parent(txn: WriteTransaction, name: str) -> tuple[DirectoryId, str]:
    """Make the directory of a new segment, with its missing parents; return its id and the name inside it.

    Raises NotDirectory or InvalidRequest.
    """
    parts = names.split(name)
    if not parts:
        raise InvalidRequest("a segment needs a name")
    names.require_unreserved(name)
    return directories.make_directories(txn, parts[:-1]), parts[-1]


def name_at(txn: ReadTransaction, target: str, last: str) -> str:
    """Return the name of what moves or is copied to `target`: `last` in it if that is a directory.

    Raises AlreadyExists for a name that is taken.
    """
    name = names.join(names.split(target))
    there = directories.find(txn, name)
    if there is not None and there.kind is EntryKind.DIRECTORY:
        name = names.join((*names.split(name), last))
        there = directories.find(txn, name)
    if there is not None:
        raise AlreadyExists(f"{names.printable(name)} exists", remedy="use another name, or remove it first: tierfs rm")
    return name


def make_directory(txn: WriteTransaction, name: str) -> None:
    """Make a directory with its missing parents; idempotent. Raises NotDirectory or InvalidRequest."""
    parts = names.split(name)
    if parts:
        names.require_unreserved(name)
        directories.make_directories(txn, parts)


def add(txn: WriteTransaction, new: SegmentRecord) -> SegmentRecord:
    """Put a new segment into its directory, and journal it. Raises AlreadyExists."""
    return add_dated(txn, replace(new, created_ms=txn.now_ms, modified_ms=txn.now_ms, changed_ms=txn.now_ms))


def add_dated(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Do the same as `add` for a segment with its times set."""
    directories.add_entry(txn, segment.parent_id, Entry(segment.name, EntryKind.SEGMENT, segment.id))
    changes.put_segment(txn, segment)
    return segment


def note_file(txn: WriteTransaction, name: str, file: IngestedFile) -> None:
    """Record mode and time of the file that a segment is a copy of, unless the segment has grown since."""
    segment = directories.segment_by_name(txn, name)
    if segment.length == file.length and segment.file != file:
        txn.touch(inode=segment.inode)
        changes.put_segment(txn, replace(segment, file=file, changed_ms=txn.now_ms))
