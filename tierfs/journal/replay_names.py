"""Replay of changes to the tree of names: entries, moves and the shape of the tree."""

from __future__ import annotations

from dataclasses import replace

from tierfs import names
from tierfs.errors import InvalidRequest
from tierfs.metadata import directories, tables, untrusted
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import DirectoryRecord, DirentRecord, SegmentRecord
from tierfs.metadata.tables import DIRECTORIES, DIRENTS, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.metadata.untrusted import require
from tierfs.types import ROOT_DIRECTORY, DirectoryId, EntryKind

_MAX_DEPTH = names.MAX_NAME_BYTES // 2 + 1
"""Components of the longest name, each with its slash."""


def place_segment(txn: WriteTransaction, old: SegmentRecord | None, new: SegmentRecord) -> None:
    """Give a segment its name; a moved one loses its old name. Raises DataLoss."""
    if old is not None and (old.parent_id, old.name, old.inode) == (new.parent_id, new.name, new.inode):
        return
    require(txn.get(DIRECTORIES, tables.u64(new.id)) is None, "a segment has a directory's id", new.id)
    check_path(txn, new.parent_id, new.name)
    if old is not None:
        displace(txn, old.parent_id, old.name, EntryKind.SEGMENT, old.id)
    _enter(txn, new.parent_id, new.name, EntryKind.SEGMENT, new.id, new.created_ms)


def place_directory(txn: WriteTransaction, message: pb.DirectoryRecord) -> tuple[int, int]:
    """Write a directory and give it its name; return its id and inode. Raises DataLoss.

    Its parent may follow later: a checkpoint is in the order of ids. `check_tree` then checks the paths that were not.
    """
    record = DIRECTORIES.codec.from_message(message)
    key = tables.u64(record.id)
    old = txn.get(DIRECTORIES, key)
    if record.id == ROOT_DIRECTORY:
        assert old is not None
        txn.put(DIRECTORIES, key, replace(old, created_ms=record.created_ms, modified_ms=record.modified_ms))
        return old.id, old.inode
    untrusted.check_directory(record)
    require(txn.get(SEGMENTS, key) is None, "a directory has a segment's id", record.id)
    txn.put(DIRECTORIES, key, record)
    if old is None or (old.parent_id, old.name) != (record.parent_id, record.name):
        if old is not None:
            displace(txn, old.parent_id, old.name, EntryKind.DIRECTORY, old.id)
        _enter(txn, record.parent_id, record.name, EntryKind.DIRECTORY, record.id, record.created_ms)
        if txn.get(DIRECTORIES, tables.u64(record.parent_id)) is not None:
            check_path(txn, record.parent_id, record.name)
    txn.touch(inode=record.inode)
    return record.id, record.inode


def remove_directory(txn: WriteTransaction, directory_id: int) -> None:
    """Remove an empty directory; a missing one is success. Raises DataLoss for one with entries."""
    record = txn.get(DIRECTORIES, tables.u64(directory_id))
    if record is None:
        return
    require(record.id != ROOT_DIRECTORY, "it removes the root directory")
    require(directories.is_empty(txn, record.id), "it removes a directory that is not empty", record.id)
    txn.delete(DIRECTORIES.name, tables.u64(directory_id))
    displace(txn, record.parent_id, record.name, EntryKind.DIRECTORY, record.id)
    txn.touch(inode=record.inode)


def displace(txn: WriteTransaction, parent_id: DirectoryId, name: str, kind: EntryKind, entry_id: int) -> None:
    """Remove the name of an entry, unless it stands for another one now."""
    entry = directories.lookup(txn, parent_id, name)
    if entry is not None and (entry.kind, entry.id) == (kind, entry_id):
        txn.delete(DIRENTS.name, tables.dirent(parent_id, name))
        _touch_parent(txn, parent_id, name, txn.now_ms)


def check_tree(txn: ReadTransaction) -> None:
    """Raise DataLoss unless every directory is below the root, by a name that is allowed."""
    for _, record in txn.scan(DIRECTORIES):
        if record.id != ROOT_DIRECTORY:
            check_path(txn, record.parent_id, record.name)


def check_path(txn: ReadTransaction, parent_id: DirectoryId, name: str) -> None:
    """Raise DataLoss unless the path up from an entry ends at the root and makes an allowed name."""
    parts = [name]
    while parent_id != ROOT_DIRECTORY:
        parent = txn.get(DIRECTORIES, tables.u64(parent_id))
        require(parent is not None, "an unknown directory", parent_id)
        assert parent is not None
        parts.append(parent.name)
        parent_id = parent.parent_id
        require(len(parts) <= _MAX_DEPTH, "directories are nested too deep or in a circle", parent_id)
    if directories.is_removed(ROOT_DIRECTORY, parts[-1]):
        parts.pop()  # it may be longer than the name it replaced
    try:
        names.split(names.join(tuple(reversed(parts))))
    except InvalidRequest as exc:
        require(False, f"an impossible name: {exc}")


def _enter(
    txn: WriteTransaction, parent_id: DirectoryId, name: str, kind: EntryKind, entry_id: int, created_ms: int
) -> None:
    entry = directories.lookup(txn, parent_id, name)
    if entry is not None and (entry.kind, entry.id) != (kind, entry_id):
        require(False, f"two entries have one name: {names.printable(name)}", entry.id, entry_id)
    txn.put(DIRENTS, tables.dirent(parent_id, name), DirentRecord(kind=kind, id=entry_id))
    _touch_parent(txn, parent_id, name, created_ms)


def _touch_parent(txn: WriteTransaction, parent_id: DirectoryId, name: str, now_ms: int) -> None:
    parent: DirectoryRecord | None = txn.get(DIRECTORIES, tables.u64(parent_id))
    if parent is None:
        return  # follows later in a checkpoint
    if now_ms > parent.modified_ms:
        txn.put(DIRECTORIES, tables.u64(parent_id), replace(parent, modified_ms=now_ms))
    txn.touch(parent_inode=parent.inode, name=name)
